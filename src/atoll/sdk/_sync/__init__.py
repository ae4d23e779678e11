"""The blocking SDK: generated from `_async` by ``tools/unasync.py``, never edited."""
