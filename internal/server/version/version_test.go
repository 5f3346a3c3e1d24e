package version

import (
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// TestGet checks that clients can read the version: they compare it with their own.
func TestGet(t *testing.T) {
	v := Get()
	parsed, err := version.ParseSemantic(v.GitVersion)
	if err != nil || parsed.BuildMetadata() != "keelson-"+Keelson || parsed.PreRelease() != "" ||
		parsed.WithBuildMetadata("").String() != Kubernetes {
		t.Errorf("%s: %v", v.GitVersion, err)
	}
	minor, older := strconv.Itoa(release.Newest), strconv.Itoa(release.Newest-1)
	if v.Major != "1" || v.Minor != minor || v.EmulationMinor != minor || v.MinCompatibilityMinor != older {
		t.Errorf("%+v", v)
	}
	if _, err := time.Parse(time.RFC3339, v.BuildDate); err != nil {
		t.Error(err)
	}
}

func TestBuild(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	repository := []debug.BuildSetting{
		{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: hash},
		{Key: "vcs.time", Value: "2026-11-26T10:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}
	for name, test := range map[string]struct {
		build               debug.BuildInfo
		commit, date, state string
		line                string
	}{
		"repository": {
			debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260101000000-aaaaaaaaaaaa+dirty"}, Settings: repository},
			hash, "2026-11-26T10:00:00Z", "dirty",
			", commit " + hash + " with changes, built from the state of 2026-11-26T10:00:00Z",
		},
		"go install of a commit": {
			debug.BuildInfo{Main: debug.Module{Version: "v0.1.1-0.20261126093000-0123456789ab"}}, "0123456789ab",
			"2026-11-26T09:30:00Z", "", ", commit 0123456789ab, built from the state of 2026-11-26T09:30:00Z",
		},
		"go install of a tag": {debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "v0.1.0", noDate, "", ", commit v0.1.0"},
		"unknown":             {debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "", noDate, "", ""},
	} {
		info := apiversion.Info{BuildDate: noDate, GitVersion: "v1.2.3"}
		setBuild(&info, &test.build)
		if info.GitCommit != test.commit || info.BuildDate != test.date || info.GitTreeState != test.state {
			t.Errorf("%s: %+v", name, info)
		}
		if got, want := Line(info), "keelson "+Keelson+" (Kubernetes v1.2.3)"+test.line; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
