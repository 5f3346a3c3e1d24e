package oidc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/auth/authn"
	"github.com/keelson-dev/keelson/auth/tokencache"
)

const (
	// remember is for how long a token that held is not looked at again.
	remember = 10 * time.Second
	// healthInterval is how often the issuers of a new configuration are asked
	// whether their keys are there.
	healthInterval = 100 * time.Millisecond
)

// Set is the issuers of the configuration in use. It is an authn.TokenAuthenticator
// that takes tokens as meant for the server itself.
type Set struct {
	own     []string
	o       Options
	current atomic.Pointer[generation]
}

// generation is the issuers of one configuration.
type generation struct {
	issuers []*Issuer
	tokens  authn.TokenAuthenticator
	end     context.CancelFunc
}

// NewSet returns the issuers of a configuration that Validate found good, with its
// mappings. They are asked for their keys until ctx ends. own are the server's
// audiences.
func NewSet(ctx context.Context, c *apiserver.AuthenticationConfiguration, mappings []*Mapping, own []string, o Options) (*Set, error) {
	s := &Set{own: own, o: o}
	g, err := s.generation(ctx, c, mappings)
	if err != nil {
		return nil, err
	}
	s.current.Store(g)
	return s, nil
}

func (s *Set) generation(ctx context.Context, c *apiserver.AuthenticationConfiguration, mappings []*Mapping) (*generation, error) {
	g := &generation{}
	ctx, g.end = context.WithCancel(ctx)
	var union authn.TokenUnion
	for i := range c.JWT {
		issuer, err := NewIssuer(ctx, &c.JWT[i], mappings[i], s.o)
		if err != nil {
			g.end()
			return nil, err
		}
		g.issuers = append(g.issuers, issuer)
		union = append(union, authn.ForAudiences(s.own, issuer))
	}
	g.tokens = tokencache.NewRecent(union, remember, 0, s.o.Now, s.o.Cached)
	return g, nil
}

// Replace uses another configuration once all its issuers have answered. If they do
// not before patience ends, the one before stays in use.
func (s *Set) Replace(ctx context.Context, patience time.Duration, c *apiserver.AuthenticationConfiguration, mappings []*Mapping) error {
	g, err := s.generation(ctx, c, mappings)
	if err != nil {
		return err
	}
	if err := g.await(ctx, patience); err != nil {
		g.end()
		return err
	}
	s.current.Swap(g).end()
	return nil
}

func (g *generation) await(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := g.health()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(healthInterval):
		}
	}
}

func (g *generation) health() error {
	var errs []error
	for _, i := range g.issuers {
		if err := i.Health(); err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (s *Set) AuthenticateToken(ctx context.Context, t authn.BearerToken, audiences []string) (*authn.Identity, error) {
	g := s.current.Load()
	issuer := issuerOf(t.Text)
	for _, i := range g.issuers {
		if i.config.Issuer.URL == issuer {
			return g.tokens.AuthenticateToken(ctx, t, audiences)
		}
	}
	return nil, nil
}
