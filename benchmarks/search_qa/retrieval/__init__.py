"""Retrieval engines behind one interface: BM25 in process, HTTP, dense vectors."""
