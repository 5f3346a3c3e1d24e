// Package s3 tests internal/storage/bucket with a real S3 server that is not ours: see README.md.
package s3
