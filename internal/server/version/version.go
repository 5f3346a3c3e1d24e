// Package version has the name and version of the program and of the API that it serves.
package version

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/machinery/release"
)

// Keelson is the version of this program.
const Keelson = "0.1.0"

// Program returns the name of this program in the files that it writes.
func Program() string { return "keelson " + Keelson }

// Kubernetes is the newest version of Kubernetes whose API the program serves.
var Kubernetes = fmt.Sprintf("%s.%d", release.Release{}, release.Patch)

// Get returns the response of /version of a server that emulates nothing. The Git version is that of the API, because
// clients compare it; the build metadata names this program.
var Get = sync.OnceValue(func() apiversion.Info { return Of(release.Release{}) })

// Of returns the response of /version of a server.
func Of(r release.Release) apiversion.Info {
	minor := strconv.Itoa
	info := apiversion.Info{
		Major: major, Minor: minor(release.Newest),
		EmulationMajor: major, EmulationMinor: minor(r.Minor()),
		MinCompatibilityMajor: major, MinCompatibilityMinor: minor(r.MinCompatible()),
		GitVersion: "v" + Kubernetes + "+keelson-" + Keelson,
		BuildDate:  noDate,
		GoVersion:  runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		setBuild(&info, build)
	}
	return info
}

const major = "1" // of all versions of Kubernetes

// noDate is the build date of a program whose date is unknown, as in Kubernetes.
const noDate = "1970-01-01T00:00:00Z"

// pseudoVersion matches the version that the go command gives a commit without a tag: it ends with the time and the hash
// (https://go.dev/ref/mod#pseudo-versions).
var pseudoVersion = regexp.MustCompile(`[-.](\d{14})-([0-9a-f]{12})(?:\+.*)?$`)

// setBuild sets the commit and the date from which a program was built: those of the repository, or those in the
// version of the module if `go install` has built it without a repository. For a tagged version, the commit is the
// tag.
func setBuild(info *apiversion.Info, build *debug.BuildInfo) {
	version := build.Main.Version
	if found := pseudoVersion.FindStringSubmatch(version); found != nil {
		info.GitCommit = found[2]
		if at, err := time.Parse("20060102150405", found[1]); err == nil {
			info.BuildDate = at.Format(time.RFC3339)
		}
	} else if strings.HasPrefix(version, "v") { // otherwise it is (devel) or empty
		info.GitCommit = version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
}

// Line returns the version as one line for people.
func Line(info apiversion.Info) string {
	line := "keelson " + Keelson + " (Kubernetes " + info.GitVersion + ")"
	if info.GitCommit != "" {
		line += ", commit " + info.GitCommit
		if info.GitTreeState == "dirty" {
			line += " with changes"
		}
	}
	if info.BuildDate != noDate {
		line += ", built from the state of " + info.BuildDate
	}
	return line
}
