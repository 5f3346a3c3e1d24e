// Package features parses --feature-gates. It knows all gates of kube-apiserver, so that command lines for
// kube-apiserver are accepted. Few of them have an effect; the server warns of the others.
package features

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// CBORServingAndStorage is the gate that serves CBOR bodies (KEP-4222).
const CBORServingAndStorage = "CBORServingAndStorage"

// stage is the maturity of a gate.
type stage int

const (
	alpha stage = iota
	beta
)

// gate is the stage and the default of a gate.
type gate struct {
	stage            stage
	enabledByDefault bool
}

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"

	componentPrefix = "kube:"
)

// implemented are the gates that have an effect.
var implemented = map[string]bool{CBORServingAndStorage: true, allAlpha: true, allBeta: true}

// Gates are the gates that were set on the command line of one server.
type Gates struct {
	set map[string]bool
}

// Parse parses values of the format A=true,kube:B=false. The last value of a gate counts. It fails for unknown gates.
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

// Enabled reports whether a gate is on: by its own value, else by that of AllAlpha or AllBeta, else by default.
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
	return k.enabledByDefault
}

// WithoutEffect returns the sorted names of the gates that were set and have no effect.
func (g Gates) WithoutEffect() []string {
	var out []string
	for name := range g.set {
		if !implemented[name] {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}
