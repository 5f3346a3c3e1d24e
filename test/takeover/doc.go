// Package takeover runs two servers that take over from each other as processes, with a copy in a directory or in a bucket of S3, makes
// faults, and checks all answers together. test/chaos runs it with an S3 service in memory, test/s3 with a real one.
//
// pair.go has the processes, load.go the clients, proxy.go the faults of the bucket, faults.go all faults, disk.go those of the disk,
// clock.go those of the clock, and rounds.go and lost.go the two tests.
package takeover
