// Package features reads --feature-gates. The gates are those of Kubernetes, so
// that a command line written for its API server is understood; what a gate turns
// on or off is up to the part that asks for it.
package features

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// CBORServingAndStorage serves CBOR bodies (KEP-4222).
const CBORServingAndStorage = "CBORServingAndStorage"

type stage int

const (
	alpha stage = iota
	beta
)

type gate struct {
	stage   stage
	enabled bool // by default
}

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"

	componentPrefix = "kube:"
)

// effective are the gates that change what the server does.
var effective = map[string]bool{CBORServingAndStorage: true, allAlpha: true, allBeta: true}

// Gates are the gates of one server.
type Gates struct {
	set map[string]bool
}

// Parse reads values of the form A=true,kube:B=false. A later one wins.
func Parse(values []string) (Gates, error) {
	g := Gates{set: map[string]bool{}}
	for _, list := range values {
		for _, item := range strings.Split(list, ",") {
			item = strings.TrimSpace(item)
			if item == "" {
				continue
			}
			name, value, ok := strings.Cut(strings.TrimPrefix(item, componentPrefix), "=")
			name = strings.TrimSpace(name)
			if !ok {
				return g, fmt.Errorf("missing bool value for feature gate %s", name)
			}
			if _, ok := known[name]; !ok {
				return g, fmt.Errorf("unrecognized feature gate: %s", name)
			}
			on, err := strconv.ParseBool(strings.TrimSpace(value))
			if err != nil {
				return g, fmt.Errorf("invalid value of feature gate %s=%s: want true or false", name, value)
			}
			g.set[name] = on
		}
	}
	return g, nil
}

// Enabled says whether a gate is on: as set, as its stage is set, or by default.
func (g Gates) Enabled(name string) bool {
	if on, ok := g.set[name]; ok {
		return on
	}
	k := known[name]
	all := allAlpha
	if k.stage == beta {
		all = allBeta
	}
	if on, ok := g.set[all]; ok {
		return on
	}
	return k.enabled
}

// WithoutEffect lists the gates that were set but that nothing here asks for.
func (g Gates) WithoutEffect() []string {
	var out []string
	for name := range g.set {
		if !effective[name] {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}
