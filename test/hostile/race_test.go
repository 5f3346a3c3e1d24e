//go:build race

package hostile

// raceDetector is true if the race detector is on, with which all figures are much higher.
const raceDetector = true
