package authentication

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/auth/anonymous"
	"github.com/keelson-dev/keelson/internal/access/auth/oidc"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/server/egress"
	"github.com/keelson-dev/keelson/internal/server/filewatch"
	"github.com/keelson-dev/keelson/internal/server/reload"
)

// issuerTimeout limits the discovery of the issuers of a changed configuration.
const issuerTimeout = time.Minute

// issuers are the trusted issuers of OpenID Connect.
type issuers struct {
	counts    *oidc.Metrics
	set       *oidc.IssuerSet // nil: none are configured
	opened    bool            // the configuration of the start is in effect
	file      []byte          // the AuthenticationConfiguration that was read last; nil without one
	anonymous *apiserver.AnonymousAuthConfig
}

// openIssuers reads the configuration of trusted issuers and of anonymous requests.
func (a *Authentication) openIssuers() (err error) {
	c := &a.Config.Authentication
	a.issuers.counts = oidc.NewMetrics(a.Metrics)
	switch {
	case c.ConfigFile != "":
		identity := reload.Hash([]byte(a.HostPort))
		_, err = a.Files.Load(reload.Part{
			Flag: "--authentication-config", Path: c.ConfigFile, Apply: a.useIssuers,
			Observe: func(err error) {
				a.issuers.counts.Reloaded(err == nil, identity, reload.Hash(a.issuers.file))
			},
		})
		a.issuers.counts.Loaded(identity, reload.Hash(a.issuers.file))
	case c.OIDC.CAFile != "":
		_, err = a.Files.Load(reload.Part{Flag: "--oidc-ca-file", Path: c.OIDC.CAFile, Apply: a.useIssuers})
	default:
		err = a.useIssuers(filewatch.ReadFile)
	}
	return err
}

// useIssuers applies the configuration of trusted issuers at the start and, if its files have changed, later.
func (a *Authentication) useIssuers(read filewatch.Read) error {
	config, err := a.configuration(read)
	switch {
	case err != nil:
		return err
	case a.issuers.opened:
		return a.replaceIssuers(config)
	}
	err = a.firstIssuers(config)
	a.issuers.opened = err == nil
	return err
}

// firstIssuers applies the configuration of the start.
func (a *Authentication) firstIssuers(file *apiserver.AuthenticationConfiguration) (err error) {
	c := &a.Config.Authentication
	if file.Anonymous != nil && (c.NoAnonymous || a.FlagGiven("anonymous-auth")) {
		asKubeAPIServer := field.Forbidden(field.NewPath("anonymous"), "--anonymous-auth flag cannot be set when anonymous field "+
			"is configured in authentication configuration file")
		return config.Errorf("{Authentication.NoAnonymous} excludes the field anonymous in {Authentication.ConfigFile}").
			OnCommandLine("%v", asKubeAPIServer)
	}
	mappings, errs := oidc.Validate(file, c.ServiceAccounts.Issuers)
	if err := errs.ToAggregate(); err != nil {
		return fmt.Errorf("invalid authentication configuration: %w", err)
	}
	if file.Anonymous != nil {
		a.Anonymous = anonymous.Rule{Enabled: file.Anonymous.Enabled}
		for _, condition := range file.Anonymous.Conditions {
			a.Anonymous.Paths = append(a.Anonymous.Paths, condition.Path)
		}
	}
	a.issuers.anonymous = file.Anonymous
	if len(file.JWT) == 0 && c.ConfigFile == "" {
		return nil
	}
	algorithms := oidc.Algorithms()
	if c.ConfigFile == "" {
		algorithms = c.OIDC.SigningAlgorithms
	}
	a.issuers.set, err = oidc.NewIssuerSet(a.Work.Context(), file, mappings, a.audiences, oidc.Options{
		Algorithms: algorithms, Log: a.Log, Cached: a.cached, Now: time.Now,
		Dialer: a.issuerDialer(), Observe: a.issuers.counts.Token,
	})
	if err != nil {
		return err
	}
	a.Work.Go("token issuers", background.Forever(a.issuers.set.Run))
	return nil
}

// issuerDialer returns the function that connects to issuers with an egress network. It returns nil without an
// egress configuration.
func (a *Authentication) issuerDialer() func(string) (oidc.DialFunc, error) {
	if a.Egress == nil {
		return nil
	}
	return func(network string) (oidc.DialFunc, error) {
		n := egress.Network(network)
		if !a.Egress.Has(n) {
			return nil, fmt.Errorf("egress lookup for %q is not configured", network)
		}
		return oidc.DialFunc(a.Egress.Dialer(n)), nil
	}
}

// configuration returns the configuration of the file, or of the flags if there is no file.
func (a *Authentication) configuration(read filewatch.Read) (*apiserver.AuthenticationConfiguration, error) {
	c := &a.Config.Authentication
	if c.ConfigFile != "" {
		content, err := read(c.ConfigFile)
		if err != nil {
			return nil, config.Errorf("{Authentication.ConfigFile}: %w", err)
		}
		a.issuers.file = content
		fromFile, err := oidc.ParseConfig(content)
		if err != nil {
			return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", c.ConfigFile, err)
		}
		return fromFile, nil
	}
	fromFields := &apiserver.AuthenticationConfiguration{}
	o := &c.OIDC
	if o.IssuerURL == "" || o.ClientID == "" {
		return fromFields, nil
	}
	flags := oidc.Flags{
		IssuerURL: o.IssuerURL, ClientID: o.ClientID, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix,
		GroupsClaim: o.GroupsClaim, GroupsPrefix: o.GroupsPrefix, RequiredClaims: o.RequiredClaims,
	}
	if o.CAFile != "" {
		pem, err := read(o.CAFile)
		if err != nil {
			return nil, config.Errorf("{Authentication.OIDC.CAFile}: %w", err)
		}
		flags.CA = string(pem)
	}
	fromFields.JWT = []apiserver.JWTAuthenticator{flags.Issuer()}
	return fromFields, nil
}

// replaceIssuers applies another configuration. It is an error if its setting for anonymous
// requests differs from the one with which the server started.
func (a *Authentication) replaceIssuers(config *apiserver.AuthenticationConfiguration) error {
	in := &a.issuers
	mappings, errs := oidc.Validate(config, a.Config.Authentication.ServiceAccounts.Issuers)
	if !reflect.DeepEqual(in.anonymous, config.Anonymous) {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file"))
	}
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	return in.set.Replace(a.Work.Context(), issuerTimeout, config, mappings)
}

// Issuers returns the trusted issuers of OpenID Connect, nil if none are configured.
func (a *Authentication) Issuers() *oidc.IssuerSet { return a.issuers.set }
