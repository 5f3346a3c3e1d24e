// Package release has the version of Kubernetes that a server emulates, and the oldest version that its components
// must be compatible with (KEP-4330). Each difference between versions is declared where it has its effect, with
// its first minor: gates in package features, versions of kinds in their Go types.
package release

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// The Kubernetes versions that the program knows. All have the major version 1.
const (
	Newest = 37 // the minor whose API is served by default
	Patch  = 2  // of the newest minor
	Oldest = 34 // the oldest minor that can be emulated
)

// Release is the minor that a server emulates, and the oldest minor that it must be compatible with. The zero
// value is the newest minor.
type Release struct {
	minor, minCompatible int
}

// Of returns the release that emulates a minor and is compatible with the minor before it. No release is
// compatible with minors before Oldest.
func Of(minor int) Release {
	return Release{minor: minor, minCompatible: max(minor-1, Oldest)}
}

// Minor returns the minor that is emulated.
func (r Release) Minor() int {
	if r.minor == 0 {
		return Newest
	}
	return r.minor
}

// MinCompatible returns the oldest minor whose servers must be able to use what this server stores.
func (r Release) MinCompatible() int {
	if r.minCompatible == 0 {
		return Of(r.Minor()).minCompatible
	}
	return r.minCompatible
}

// Emulates reports whether the release emulates a minor that is not the newest.
func (r Release) Emulates() bool { return r.Minor() != Newest }

// String returns the emulated version as MAJOR.MINOR.
func (r Release) String() string { return text(r.Minor()) }

// text returns a minor as MAJOR.MINOR.
func text(minor int) string { return fmt.Sprintf("1.%d", minor) }

// MinCompatibleText returns MinCompatible as MAJOR.MINOR.
func (r Release) MinCompatibleText() string { return text(r.MinCompatible()) }

// Component is the name of this program in the flags.
const Component = "kube"

// Parse returns the release of the values of --emulated-version and --min-compatibility-version, which have the form
// kube=1.36 or 1.36, or are empty. Its errors are those of kube-apiserver.
func Parse(emulated, minCompatible string) (Release, error) {
	minor, err := parseFlag(emulated)
	if err != nil {
		return Release{}, err
	}
	oldest, err := parseFlag(minCompatible)
	if err != nil {
		return Release{}, err
	}
	var r Release
	if minor != 0 {
		r = Of(minor)
	}
	if oldest != 0 {
		r.minCompatible = oldest
	}
	return r, r.validate()
}

// parseFlag returns the minor in the value of a flag, a list with commas. It returns 0 if the list is empty.
func parseFlag(list string) (int, error) {
	if list == "" {
		return 0, nil
	}
	minor, before := 0, ""
	for value := range strings.SplitSeq(list, ",") {
		component, text, found := strings.Cut(value, "=")
		if !found {
			component, text = Component, value
		}
		if component != Component {
			return 0, fmt.Errorf("component not registered: %s", component)
		}
		if before != "" {
			return 0, fmt.Errorf("duplicate version flag, %s and %s", before, value)
		}
		before = value
		v, err := version.Parse(text)
		if err != nil {
			return 0, err
		}
		if v.Patch() != 0 || strings.Count(text, ".") > 1 {
			return 0, fmt.Errorf("patch version not allowed, got: %s", value)
		}
		if v.Major() == 1 {
			minor = int(v.Minor())
		} else { // the program has no versions of this major
			minor = outOfRange
		}
	}
	return minor, nil
}

// outOfRange stands for a version of another major.
const outOfRange = 1 << 20

// validate returns what is wrong with the minors.
func (r Release) validate() error {
	var wrong []string
	if m := r.Minor(); m < Oldest || m > Newest {
		wrong = append(wrong, fmt.Sprintf("emulation version %s is not between [%s, %s.0]", r, text(Oldest), text(Newest)))
	}
	if m := r.MinCompatible(); m < Oldest || m > r.Minor() {
		wrong = append(wrong, fmt.Sprintf("minCompatibilityVersion version %s is not between [%s, %s]",
			r.MinCompatibleText(), text(Oldest), r))
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s", wrong[0])
	}
	return fmt.Errorf("[%s]", strings.Join(wrong, ", "))
}
