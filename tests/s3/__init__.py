"""The checkpoint root in S3, over real servers and over a stub for what no server shows on demand."""
