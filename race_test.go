//go:build race

package keelson_test

// raceDetector is true in a test with the race detector, which takes memory for each goroutine.
const raceDetector = true
