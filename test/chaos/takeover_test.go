//go:build unix

package chaos

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/storage/bucket/buckettest"
	"github.com/keelson-dev/keelson/test/rig"
	"github.com/keelson-dev/keelson/test/takeover"
)

// credentials are those of a service that checks no signatures.
var credentials = []string{"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_SESSION_TOKEN="}

// eachPlace runs a test with a copy in a directory and one with a copy in a bucket. They run at the same time, because they mostly wait.
func eachPlace(t *testing.T, run func(t *testing.T, place takeover.Place)) {
	t.Parallel()
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		run(t, takeover.Directory(t))
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		run(t, takeover.Bucket(t, buckettest.NewS3(), "test-bucket", credentials...))
	})
}

// TestTakeover is takeover.Pair.Rounds. With KEELSON_CLOCKS=1 the clocks of the servers are set too (takeover.Clocks), with KEELSON_LONG=1
// some pauses take up to two minutes.
func TestTakeover(t *testing.T) {
	eachPlace(t, func(t *testing.T, place takeover.Place) {
		takeover.NewPair(t, rig.Seeded(t), server(t), place, "--backup-mode", "sync").Rounds(rig.Rounds(1, 100))
	})
}

// TestTakeoverLosesOnlyTheEnd is takeover.Pair.OnlyTheEndIsLost.
func TestTakeoverLosesOnlyTheEnd(t *testing.T) {
	eachPlace(t, func(t *testing.T, place takeover.Place) {
		takeover.NewPair(t, rig.Seeded(t), server(t), place).OnlyTheEndIsLost(rig.Rounds(1, 100))
	})
}

// TestTakeoverNeedsConditions has a bucket that does not keep the conditions of a PUT. No server may answer.
func TestTakeoverNeedsConditions(t *testing.T) {
	t.Parallel()
	s3 := buckettest.NewS3()
	s3.Unconditional = true
	takeover.NewPair(t, rig.Seeded(t), server(t), takeover.Bucket(t, s3, "test-bucket", credentials...)).
		Refuses("the service does not keep the conditions")
}
