package always

import (
	"context"
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/auth/authz"
)

// Paths allows everybody what is asked of some paths that are no resources.
type Paths struct {
	exact    map[string]bool
	prefixes []string
}

// NewPaths returns an authorizer for paths such as /healthz or, with all that is
// below, /healthz/*; nil for none.
func NewPaths(list []string) (*Paths, error) {
	if len(list) == 0 {
		return nil, nil
	}
	p := &Paths{exact: map[string]bool{}}
	for _, path := range list {
		path = strings.TrimPrefix(path, "/")
		prefix, wild := strings.CutSuffix(path, "*")
		switch {
		case strings.Contains(prefix, "*"):
			return nil, fmt.Errorf("only trailing * allowed in %q", path)
		case wild:
			p.prefixes = append(p.prefixes, prefix)
		default:
			p.exact[path] = true
		}
	}
	return p, nil
}

// Authorize implements authz.Authorizer.
func (p *Paths) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.Info.IsResource() {
		return authz.NoOpinion, "", nil
	}
	path := strings.TrimPrefix(a.Info.Path, "/")
	if p.exact[path] {
		return authz.Allow, "", nil
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(path, prefix) {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "", nil
}
