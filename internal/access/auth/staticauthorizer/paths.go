package staticauthorizer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keelson-dev/keelson/internal/access/auth/authz"
)

// AlwaysAllowPaths allows requests for certain non-resource paths to every user
// (--authorization-always-allow-paths).
type AlwaysAllowPaths struct {
	exact    map[string]bool
	prefixes []string
}

// NewAlwaysAllowPaths returns an authorizer for the paths in list. A path that ends in
// * stands for all paths with that prefix, such as /healthz/*. It returns nil for an
// empty list, and an error if a path has a * anywhere else.
func NewAlwaysAllowPaths(list []string) (*AlwaysAllowPaths, error) {
	if len(list) == 0 {
		return nil, nil
	}
	p := &AlwaysAllowPaths{exact: map[string]bool{}}
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
func (p *AlwaysAllowPaths) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.Info.IsResource() {
		return authz.NoOpinion, "", nil
	}
	path := strings.TrimPrefix(a.Info.Path, "/")
	begins := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	if p.exact[path] || slices.ContainsFunc(p.prefixes, begins) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}
