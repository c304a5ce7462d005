// kafka-rest (npm): topics, a topic, its partitions and the brokers; called with the URL, a topic, a partition.
"use strict";
const KafkaRest = require("kafka-rest");
const [url, topic] = process.argv.slice(2);
const client = new KafkaRest({ url });
const found = { produced: 0 };
function then(name, next) {
  return (error, result) => {
    if (error) throw new Error(`${name}: ${error}`);
    found[name] = [].concat(result).map((each) => each.raw);
    next();
  };
}
client.topics.list(then("topics", () =>
  client.topic(topic).get(then("topic", () =>
    client.topic(topic).partitions.list(then("partitions", () =>
      client.brokers.list(then("brokers", () => console.log(JSON.stringify(found))))))))));
