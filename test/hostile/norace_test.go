//go:build !race

package hostile

// raceDetector says that figures are many times what they would be without it.
const raceDetector = false
