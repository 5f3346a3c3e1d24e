package version

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// TestGet checks that clients can read the version: they compare it with their own.
func TestGet(t *testing.T) {
	v := Get()
	parsed, err := version.ParseSemantic(v.GitVersion)
	if err != nil || parsed.BuildMetadata() != "keelson-"+Keelson || parsed.PreRelease() != "" ||
		parsed.WithBuildMetadata("").String() != Major+"."+Minor+"."+Patch {
		t.Errorf("%s: %v", v.GitVersion, err)
	}
	if v.Major != Major || v.Minor != Minor || v.EmulationMinor != Minor || v.MinCompatibilityMinor != OldestMinor {
		t.Errorf("%+v", v)
	}
	if _, err := time.Parse(time.RFC3339, v.BuildDate); err != nil {
		t.Error(err)
	}
}
