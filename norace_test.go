//go:build !race

package keelson_test

const raceDetector = false
