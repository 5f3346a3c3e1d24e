package server

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/auth/anonymous"
	"github.com/keelson-dev/keelson/auth/filewatch"
	"github.com/keelson-dev/keelson/auth/oidc"
	"github.com/keelson-dev/keelson/server/background"
	"github.com/keelson-dev/keelson/server/egress"
)

// issuerTimeout limits the discovery of the issuers of a changed configuration.
const issuerTimeout = time.Minute

// issuers are the trusted issuers of OpenID Connect.
type issuers struct {
	set       *oidc.IssuerSet // nil: none are configured
	file      []byte          // the AuthenticationConfiguration at the start
	anonymous *apiserver.AnonymousAuthConfig
}

// openIssuers reads the configuration of trusted issuers and of anonymous requests.
func (a *authentication) openIssuers() error {
	c := &a.config.Authentication
	config, err := a.configuration()
	if err != nil {
		return err
	}
	if config.Anonymous != nil && c.AnonymousSet {
		return field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when anonymous field "+
			"is configured in authentication configuration file")
	}
	mappings, errs := oidc.Validate(config, c.ServiceAccounts.Issuers)
	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("invalid authentication configuration: %w", err)
	}
	if config.Anonymous != nil {
		a.anonymous = anonymous.Rule{Enabled: config.Anonymous.Enabled}
		for _, condition := range config.Anonymous.Conditions {
			a.anonymous.Paths = append(a.anonymous.Paths, condition.Path)
		}
	}
	a.issuers.anonymous = config.Anonymous
	if len(config.JWT) == 0 && c.ConfigFile == "" {
		return nil
	}
	algorithms := oidc.Algorithms()
	if c.ConfigFile == "" {
		algorithms = c.OIDC.SigningAlgorithms
	}
	a.issuers.set, err = oidc.NewIssuerSet(a.work.Context(), config, mappings, a.audiences, oidc.Options{
		Algorithms: algorithms, Log: a.log, Cached: a.tokensCached(), Now: time.Now,
		Dialer: a.issuerDialer(), Observe: a.metrics.IssuerToken,
	})
	if err != nil {
		return err
	}
	a.work.Go("token issuers", background.Forever(a.issuers.set.Run))
	return nil
}

// issuerDialer returns the function that connects to issuers with an egress network. It returns nil without an
// egress configuration.
func (a *authentication) issuerDialer() func(string) (oidc.DialFunc, error) {
	if a.egress == nil {
		return nil
	}
	return func(network string) (oidc.DialFunc, error) {
		dial := a.egress.Dialer(egress.Network(network))
		if dial == nil {
			return nil, fmt.Errorf("egress lookup for %q is not configured", network)
		}
		return oidc.DialFunc(dial), nil
	}
}

// configuration returns the configuration of the file, or of the flags if there is no file.
func (a *authentication) configuration() (*apiserver.AuthenticationConfiguration, error) {
	c := &a.config.Authentication
	if c.ConfigFile != "" {
		content, err := os.ReadFile(c.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--authentication-config: %w", err)
		}
		a.issuers.file = content
		config, err := oidc.ParseConfig(content)
		if err != nil {
			return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", c.ConfigFile, err)
		}
		return config, nil
	}
	config := &apiserver.AuthenticationConfiguration{}
	o := &c.OIDC
	if o.IssuerURL == "" || o.ClientID == "" {
		return config, nil
	}
	flags := oidc.Flags{
		IssuerURL: o.IssuerURL, ClientID: o.ClientID, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix,
		GroupsClaim: o.GroupsClaim, GroupsPrefix: o.GroupsPrefix, RequiredClaims: o.RequiredClaims,
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		flags.CA = string(pem)
	}
	config.JWT = []apiserver.JWTAuthenticator{flags.Issuer()}
	return config, nil
}

// followIssuers applies changes of the AuthenticationConfiguration until ctx ends.
func (a *authentication) followIssuers(ctx context.Context) {
	c, in := &a.config.Authentication, &a.issuers
	identity := hash([]byte(a.hostPort))
	a.metrics.AuthenticationLoaded(identity, hash(in.file))
	f := filewatch.File{
		Path: c.ConfigFile, Interval: a.config.reloadEvery(), Wake: a.config.wake,
		Apply: func(content []byte) error {
			if err := a.replaceIssuers(content); err != nil {
				return err
			}
			a.log.Info("the authentication configuration was reloaded", "file", c.ConfigFile)
			a.metrics.AuthenticationReload(true, identity)
			a.metrics.AuthenticationLoaded(identity, hash(content))
			return nil
		},
		OnError: func(err error) {
			a.metrics.AuthenticationReload(false, identity)
			a.log.Error("the authentication configuration cannot be reloaded; the one before stays in use", "error", err)
		},
	}
	f.Run(ctx, in.file)
}

// replaceIssuers applies another AuthenticationConfiguration. Its setting for anonymous requests is ignored: that
// of the start stays in force.
func (a *authentication) replaceIssuers(content []byte) error {
	in := &a.issuers
	config, err := oidc.ParseConfig(content)
	if err != nil {
		return err
	}
	mappings, errs := oidc.Validate(config, a.config.Authentication.ServiceAccounts.Issuers)
	if !reflect.DeepEqual(in.anonymous, config.Anonymous) {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file"))
	}
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	if err := in.set.Replace(a.work.Context(), issuerTimeout, config, mappings); err != nil {
		return filewatch.Retryable(err)
	}
	return nil
}
