package serviceaccount

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keelson-dev/keelson/internal/access/auth/authn"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// claims are the claims of a bound or a legacy token.
type claims struct {
	jwt.Claims
	legacyClaims
	Kubernetes boundClaims `json:"kubernetes.io,omitzero"`
}

// boundClaims are the service account of a bound token, and the objects that the token is
// bound to.
type boundClaims struct {
	Namespace string           `json:"namespace,omitempty"`
	Node      *reference       `json:"node,omitempty"`
	Pod       *reference       `json:"pod,omitempty"`
	Secret    *reference       `json:"secret,omitempty"`
	Account   reference        `json:"serviceaccount,omitzero"`
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// legacyClaims are the claims of a token that is stored in a Secret.
type legacyClaims struct {
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
}

const (
	userPrefix  = "system:serviceaccount:"
	groupAll    = "system:serviceaccounts"
	groupPrefix = "system:serviceaccounts:"

	extraPod        = "authentication.kubernetes.io/pod-name"
	extraPodUID     = "authentication.kubernetes.io/pod-uid"
	extraNode       = "authentication.kubernetes.io/node-name"
	extraNodeUID    = "authentication.kubernetes.io/node-uid"
	extraCredential = "authentication.kubernetes.io/credential-id"
	// credentialPrefix is the prefix of the credential ID of a token.
	credentialPrefix = "JTI="
)

// UserName returns the user name of a service account.
func UserName(namespace, name string) string { return userPrefix + namespace + ":" + name }

// newUser returns the user of a service account.
func newUser(namespace, name, uid string) *request.User {
	return &request.User{
		Name: UserName(namespace, name), UID: uid,
		Groups: []string{groupAll, groupPrefix + namespace, request.GroupAuthenticated},
	}
}

// user returns the user of the token.
func (c *claims) user(legacy bool) *request.User {
	if legacy {
		return newUser(c.legacyClaims.Namespace, c.AccountName, c.AccountUID)
	}
	b := &c.Kubernetes
	u := newUser(b.Namespace, b.Account.Name, b.Account.UID)
	extra := map[string][]string{}
	if c.ID != "" {
		extra[extraCredential] = []string{credentialPrefix + c.ID}
	}
	if b.Pod != nil && b.Pod.Name != "" && b.Pod.UID != "" {
		extra[extraPod], extra[extraPodUID] = []string{b.Pod.Name}, []string{b.Pod.UID}
	}
	if b.Node != nil && b.Node.Name != "" {
		extra[extraNode] = []string{b.Node.Name}
		if b.Node.UID != "" {
			extra[extraNodeUID] = []string{b.Node.UID}
		}
	}
	if len(extra) > 0 {
		u.Extra = extra
	}
	return u
}

// checkTime returns an error unless the token is valid at that time.
func (c *claims) checkTime(now time.Time) error {
	switch err := c.ValidateWithLeeway(jwt.Expected{Time: now}, jwt.DefaultLeeway); {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return authn.Refuse(authn.ReasonExpired, c.Issuer, errors.New("service account token has expired"))
	case errors.Is(err, jwt.ErrNotValidYet):
		return authn.Refuse(authn.ReasonNotYet, c.Issuer, errors.New("service account token is not valid yet"))
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return authn.Refuse(authn.ReasonNotYet, c.Issuer, errors.New("service account token is issued in the future"))
	default:
		return errors.New("service account token claims could not be validated due to unexpected validation error")
	}
}

// checkLegacy returns an error unless the claims of a legacy token are complete and
// consistent.
func (c *claims) checkLegacy() error {
	switch {
	case c.Subject == "":
		return errors.New("sub claim is missing")
	case c.legacyClaims.Namespace == "":
		return errors.New("namespace claim is missing")
	case c.SecretName == "":
		return errors.New("secretName claim is missing")
	case c.AccountName == "":
		return errors.New("serviceAccountName claim is missing")
	case c.AccountUID == "":
		return errors.New("serviceAccountUID claim is missing")
	case c.Subject != UserName(c.legacyClaims.Namespace, c.AccountName) ||
		strings.Count(c.Subject, ":") != strings.Count(userPrefix, ":")+1:
		return errors.New("sub claim is invalid")
	}
	return nil
}

// issuerOf returns the issuer in a token that has not been verified yet, or "" if the token is
// not a JSON web token in compact form.
func issuerOf(token string) string {
	if strings.HasPrefix(token, "{") || strings.Count(token, ".") != 2 {
		return ""
	}
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, _ := strings.Cut(rest, ".")
	payload, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &c) != nil {
		return ""
	}
	return c.Issuer
}
