"""File descriptors that Confluent's registry knows without a reference.

Copied from confluent-kafka 2.16.1 (Apache-2.0), which the query function does not carry; a test compares
them.
"""

import base64

_TEXT = {
    "confluent/meta.proto": (
        "ChRjb25mbHVlbnQvbWV0YS5wcm90bxIJY29uZmx1ZW50GiBnb29nbGUvcHJvdG9idWYvZGVzY3JpcHRvci5wcm90byKdAQoETWV0"
        "YRILCgNkb2MYASABKAkSKwoGcGFyYW1zGAIgAygLMhsuY29uZmx1ZW50Lk1ldGEuUGFyYW1zRW50cnkSDAoEdGFncxgDIAMoCRIe"
        "CgVydWxlcxgEIAMoCzIPLmNvbmZsdWVudC5SdWxlGi0KC1BhcmFtc0VudHJ5EgsKA2tleRgBIAEoCRINCgV2YWx1ZRgCIAEoCToC"
        "OAEiPAoEUnVsZRIMCgRuYW1lGAEgASgJEgsKA2RvYxgCIAEoCRIMCgRleHByGAMgASgJEgsKA3NxbBgEIAEoCTpBCglmaWxlX21l"
        "dGESHC5nb29nbGUucHJvdG9idWYuRmlsZU9wdGlvbnMYwAggASgLMg8uY29uZmx1ZW50Lk1ldGE6RwoMbWVzc2FnZV9tZXRhEh8u"
        "Z29vZ2xlLnByb3RvYnVmLk1lc3NhZ2VPcHRpb25zGMAIIAEoCzIPLmNvbmZsdWVudC5NZXRhOkMKCmZpZWxkX21ldGESHS5nb29n"
        "bGUucHJvdG9idWYuRmllbGRPcHRpb25zGMAIIAEoCzIPLmNvbmZsdWVudC5NZXRhOkEKCWVudW1fbWV0YRIcLmdvb2dsZS5wcm90"
        "b2J1Zi5FbnVtT3B0aW9ucxjACCABKAsyDy5jb25mbHVlbnQuTWV0YTpMCg9lbnVtX3ZhbHVlX21ldGESIS5nb29nbGUucHJvdG9i"
        "dWYuRW51bVZhbHVlT3B0aW9ucxjACCABKAsyDy5jb25mbHVlbnQuTWV0YUIOWgwuLi9jb25mbHVlbnRiBnByb3RvMw=="
    ),
    "confluent/type/decimal.proto": (
        "Chxjb25mbHVlbnQvdHlwZS9kZWNpbWFsLnByb3RvEg5jb25mbHVlbnQudHlwZSI6CgdEZWNpbWFsEg0KBXZhbHVlGAEgASgMEhEK"
        "CXByZWNpc2lvbhgCIAEoDRINCgVzY2FsZRgDIAEoBWIGcHJvdG8z"
    ),
    "confluent/type/variant.proto": (
        "Chxjb25mbHVlbnQvdHlwZS92YXJpYW50LnByb3RvEg5jb25mbHVlbnQudHlwZSIqCgdWYXJpYW50EhAKCG1ldGFkYXRhGAEgASgM"
        "Eg0KBXZhbHVlGAIgASgMYgZwcm90bzM="
    ),
    "confluent/types/decimal.proto": (
        "Ch1jb25mbHVlbnQvdHlwZXMvZGVjaW1hbC5wcm90bxocY29uZmx1ZW50L3R5cGUvZGVjaW1hbC5wcm90b1AAYgZwcm90bzM="
    ),
}
CONFLUENT_FILES = {name: base64.b64decode(text) for name, text in _TEXT.items()}
