"""The names of Keylane's keys in Redis."""

RECORD_TAG = b"keylane"
"""The hash tag of a topic's records: layout, writer's record, epoch counter, stray totals. Slot 16203."""
COPY_TAGS = (b"keylane-v", b"keylane-h")
"""The hash tags under which the records are kept again, without the stray totals: slots 5307 and 10052.

The three slots lie a third of the cluster apart, so three shards or more have one record each.
"""
ALL_TAGS = (RECORD_TAG, *COPY_TAGS)


def value_key_prefix(tag: bytes, topic: str, generation: int) -> bytes:
    """Return the part before the record's own key: `{tag}:T:g:v:`."""
    return b"{%b}:%b:%d:v:" % (tag, topic.encode(), generation)


def value_key(tag: bytes, topic: str, generation: int, key: bytes) -> bytes:
    """Return the key of the latest record: `{tag}:T:g:v:<key>`."""
    return value_key_prefix(tag, topic, generation) + key


def history_key(tag: bytes, topic: str, generation: int, key: bytes) -> bytes:
    """Return the key of a record key's history: `{tag}:T:g:h:<key>`."""
    return b"{%b}:%b:%d:h:%b" % (tag, topic.encode(), generation, key)


def index_key(tag: bytes, topic: str, generation: int, partition: int, stripe: int) -> bytes:
    """Return the key of a lane's ordered index of live keys: `{tag}:T:g:i:<partition>.<stripe>`."""
    return b"{%b}:%b:%d:i:%d.%d" % (tag, topic.encode(), generation, partition, stripe)


def history_index_key(tag: bytes, topic: str, generation: int, partition: int, stripe: int) -> bytes:
    """Return the key of a lane's ordered index of keys with a history: `{tag}:T:g:p:<partition>.<stripe>`."""
    return b"{%b}:%b:%d:p:%d.%d" % (tag, topic.encode(), generation, partition, stripe)


def parts_of(key: bytes, count: int) -> list[bytes]:
    """Return the keys of a lane's sorted set in so many parts: `<key>.<part>`; undivided, the key itself."""
    return [b"%b.%d" % (key, part) for part in range(count)] if count > 1 else [key]


def field_index_key(
    tag: bytes, topic: str, generation: int, partition: int, stripe: int, number: int
) -> bytes:
    """Return the key of a lane's index of fields: `{tag}:T:g:f:<partition>.<stripe>.<number>`."""
    return b"{%b}:%b:%d:f:%d.%d.%d" % (tag, topic.encode(), generation, partition, stripe, number)


def watermark_key(tag: bytes, topic: str, generation: int, partition: int, stripe: int) -> bytes:
    """Return the key of a lane's watermark record: `{tag}:T:g:w:<partition>.<stripe>`."""
    return b"{%b}:%b:%d:w:%d.%d" % (tag, topic.encode(), generation, partition, stripe)


def lane_key(tag: bytes, topic: str, generation: int, kind: bytes, lane: bytes) -> bytes:
    """Return the key of another record of a lane: `{tag}:T:g:<kind>:<partition>.<stripe>`."""
    return b"{%b}:%b:%d:%b:%b" % (tag, topic.encode(), generation, kind, lane)


def writer_key(tag: bytes, topic: str, generation: int) -> bytes:
    """Return the key of the last epoch that opened a lane of the generation in this slot: `{tag}:T:g:e`."""
    return b"{%b}:%b:%d:e" % (tag, topic.encode(), generation)


def layout_key(topic: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of a topic's layout record."""
    return b"{%b}:layout:%b" % (tag, topic.encode())


def record_key(topic: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of the writer's record of a topic. Readers take from it what is being built."""
    return b"{%b}:topic:%b" % (tag, topic.encode())


def dictionaries_key(topic: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of a topic's dictionaries: a hash, of which `dictionary_field` names the fields."""
    return b"{%b}:dictionaries:%b" % (tag, topic.encode())


def dictionary_field(generation: int, dictionary_id: int) -> bytes:
    """Return the field of a dictionary in the hash of its topic."""
    return b"%d.%d" % (generation, dictionary_id)


def training_key(topic: str, generation: int, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key that is there while nobody else may make a dictionary for a generation. It expires."""
    return b"{%b}:training:%b:%d" % (tag, topic.encode(), generation)


def stopped_key(view: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of why a view does not run. It expires: the job writes it again while that is so."""
    return b"{%b}:stopped:%b" % (tag, view.encode())


def strays_key(topic: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of a topic's stray totals: a hash of `GENERATION.strays` and `GENERATION.PARTITIONER`.

    The latter counts the strays that are where that partitioner puts them.
    """
    return b"{%b}:strays:%b" % (tag, topic.encode())


def views_key(tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of the names of all views: a sorted set, all scores 0."""
    return b"{%b}:views" % tag


def topics_key(tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of the names of all topics that have a state: a sorted set, as that of views."""
    return b"{%b}:topics" % tag


def epoch_key(topic: str, tag: bytes = RECORD_TAG) -> bytes:
    """Return the key of the counter that numbers a topic's writers."""
    return b"{%b}:epoch:%b" % (tag, topic.encode())
