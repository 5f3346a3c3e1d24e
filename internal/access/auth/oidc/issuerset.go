package oidc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/access/auth/tokencache"
)

const (
	// cacheTTL is the time for which a valid token is cached.
	cacheTTL = 10 * time.Second
	// healthInterval is the time between two health checks of the issuers of a new
	// configuration.
	healthInterval = 100 * time.Millisecond
)

// IssuerSet has the issuers of the current configuration. It is an authn.TokenAuthenticator
// whose tokens are valid for the API server's own audiences.
type IssuerSet struct {
	audiences []string
	o         Options
	current   atomic.Pointer[configuredIssuers]

	mu      sync.Mutex     // guards ended, and the beginning of running
	running sync.WaitGroup // requests for the metadata of issuers
	ended   bool
}

// configuredIssuers are the issuers of one configuration.
type configuredIssuers struct {
	issuers []*Issuer
	tokens  authn.TokenAuthenticator
	cancel  context.CancelFunc
}

// stop ends the use of the issuers.
func (c *configuredIssuers) stop() {
	c.cancel()
	for _, i := range c.issuers {
		i.client.CloseIdleConnections()
	}
}

// NewIssuerSet returns the issuers of a valid configuration, with the mappings that Validate
// returned. They fetch keys until ctx is done. own are the API server's audiences. The caller
// has to call Run.
func NewIssuerSet(
	ctx context.Context, c *apiserver.AuthenticationConfiguration, mappings []*Mapping, own []string, o Options,
) (*IssuerSet, error) {
	s := &IssuerSet{audiences: own, o: o}
	g, err := s.startIssuers(ctx, c, mappings)
	if err != nil {
		return nil, err
	}
	s.current.Store(g)
	return s, nil
}

// Run waits until ctx is done and the background work of the set has ended. ctx must not end before the context that
// NewIssuerSet got.
func (s *IssuerSet) Run(ctx context.Context) {
	<-ctx.Done()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
	s.current.Load().stop()
}

var errEnded = errors.New("oidc: the server stops")

// goUnlessEnded runs f in the background.
func (s *IssuerSet) goUnlessEnded(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded
	}
	s.running.Go(f)
	return nil
}

func (s *IssuerSet) startIssuers(
	ctx context.Context, c *apiserver.AuthenticationConfiguration, mappings []*Mapping,
) (*configuredIssuers, error) {
	g := &configuredIssuers{}
	ctx, g.cancel = context.WithCancel(ctx)
	var union authn.TokenUnion
	for i := range c.JWT {
		issuer, err := NewIssuer(ctx, &c.JWT[i], mappings[i], s.o)
		if err == nil {
			err = s.goUnlessEnded(func() { issuer.Discover(ctx) })
		}
		if err != nil {
			g.stop()
			return nil, err
		}
		g.issuers = append(g.issuers, issuer)
		union = append(union, authn.WrapAudienceAgnostic(s.audiences, issuer))
	}
	g.tokens = tokencache.NewAuthenticator(union, cacheTTL, 0, s.o.Now, s.o.Cached)
	return g, nil
}

// Replace switches to another configuration as soon as all its issuers are healthy. If they
// are not after patience, it returns an error and the previous configuration stays in use.
func (s *IssuerSet) Replace(
	ctx context.Context, patience time.Duration, c *apiserver.AuthenticationConfiguration, mappings []*Mapping,
) error {
	g, err := s.startIssuers(ctx, c, mappings)
	if err != nil {
		return err
	}
	if err := g.waitHealthy(ctx, patience); err != nil {
		g.stop()
		return err
	}
	s.current.Swap(g).stop()
	return nil
}

func (c *configuredIssuers) waitHealthy(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := c.health()
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

func (c *configuredIssuers) health() error {
	var errs []error
	for _, i := range c.issuers {
		errs = append(errs, i.Health())
	}
	return utilerrors.NewAggregate(errs)
}

// AuthenticateToken implements authn.TokenAuthenticator.
func (s *IssuerSet) AuthenticateToken(
	ctx context.Context, t authn.BearerToken, audiences []string,
) (*authn.Identity, error) {
	g := s.current.Load()
	issuer := issuerOf(t.Text)
	for _, i := range g.issuers {
		if i.config.Issuer.URL == issuer {
			return g.tokens.AuthenticateToken(ctx, t, audiences)
		}
	}
	return nil, nil
}
