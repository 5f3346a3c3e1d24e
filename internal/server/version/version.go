// Package version has the name and version of the program and of the API that it serves.
package version

import (
	"runtime"
	"runtime/debug"
	"sync"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// Keelson is the version of this program.
const Keelson = "0.1.0"

// The Kubernetes version whose API is served.
const (
	Major = "1"
	Minor = "36"
	Patch = "3"

	OldestMinor = "35" // of a compatible control plane
)

// Get returns the response of /version. The Git version is that of the API, because clients compare it; the build
// metadata names this program.
var Get = sync.OnceValue(func() apiversion.Info {
	info := apiversion.Info{
		Major: Major, Minor: Minor,
		EmulationMajor: Major, EmulationMinor: Minor,
		MinCompatibilityMajor: Major, MinCompatibilityMinor: OldestMinor,
		GitVersion: "v" + Major + "." + Minor + "." + Patch + "+keelson-" + Keelson,
		BuildDate:  "1970-01-01T00:00:00Z",
		GoVersion:  runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		}
	}
	return info
})
