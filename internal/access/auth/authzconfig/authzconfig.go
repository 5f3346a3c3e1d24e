// Package authzconfig reads an AuthorizationConfiguration: the list of authorizers in the order of their calls
// (KEP-3221).
package authzconfig

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/keelson-dev/keelson/internal/access/auth/webhookauthorizer"
	"github.com/keelson-dev/keelson/internal/machinery/configfile"
)

const (
	// maxTimeout is the longest timeout that can be configured for a call of a webhook.
	maxTimeout = 30 * time.Second

	// Webhook is the only type that may occur more than once.
	Webhook = "Webhook"

	kubeconfigFile = "KubeConfigFile"
	inCluster      = "InClusterConfig"
)

// types are the valid types of authorizers, sorted.
var types = []string{"ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", Webhook}

// NameOf returns the name of an authorizer of a type other than Webhook.
func NameOf(authorizerType string) string { return strings.ToLower(authorizerType) }

var kind = configfile.Kind{
	Group: "apiserver.config.k8s.io", Name: "AuthorizationConfiguration", Versions: []string{"v1", "v1beta1", "v1alpha1"},
}

// Load parses and validates a configuration in YAML or JSON. required are the types that it
// must contain.
func Load(content []byte, required []string) (*apiserver.AuthorizationConfiguration, error) {
	c, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
	}
	if errs := validate(c); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	var failed []error
	var seen, missing []string
	for _, a := range c.Authorizers {
		if a.Type == Webhook {
			continue
		}
		seen = append(seen, a.Type)
		if want := NameOf(a.Type); a.Name != want {
			failed = append(failed, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name))
		}
	}
	for _, name := range required {
		if !slices.Contains(seen, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		failed = append(failed, fmt.Errorf("missing required types: %v", missing))
	}
	return c, utilerrors.NewAggregate(failed)
}

func parse(content []byte) (*apiserver.AuthorizationConfiguration, error) {
	c := &apiserver.AuthorizationConfiguration{}
	if len(content) == 0 {
		return c, nil
	}
	if err := kind.Decode(content, c, &c.TypeMeta); err != nil {
		return nil, err
	}
	for i := range c.Authorizers {
		if w := c.Authorizers[i].Webhook; w != nil {
			setDefaults(w)
		}
	}
	return c, nil
}

func setDefaults(w *apiserver.WebhookConfiguration) {
	const authorizedTTL, unauthorizedTTL = 5 * time.Minute, 30 * time.Second
	yes := true
	w.AuthorizedTTL.Duration = cmp.Or(w.AuthorizedTTL.Duration, authorizedTTL)
	w.UnauthorizedTTL.Duration = cmp.Or(w.UnauthorizedTTL.Duration, unauthorizedTTL)
	w.CacheAuthorizedRequests = cmp.Or(w.CacheAuthorizedRequests, &yes)
	w.CacheUnauthorizedRequests = cmp.Or(w.CacheUnauthorizedRequests, &yes)
}

func validate(c *apiserver.AuthorizationConfiguration) field.ErrorList {
	root := field.NewPath("authorizers")
	if len(c.Authorizers) == 0 {
		return field.ErrorList{field.Required(root, "at least one authorization mode must be defined")}
	}
	var errs field.ErrorList
	seenTypes, seenNames := map[string]bool{}, map[string]bool{}
	for i := range c.Authorizers {
		a, at := &c.Authorizers[i], root.Index(i)
		switch {
		case a.Type == "":
			errs = append(errs, field.Required(at.Child("type"), ""))
			continue
		case !slices.Contains(types, a.Type):
			errs = append(errs, field.NotSupported(at.Child("type"), a.Type, types))
			continue
		case seenTypes[a.Type] && a.Type != Webhook:
			errs = append(errs, field.Duplicate(at.Child("type"), a.Type))
			continue
		}
		seenTypes[a.Type] = true
		errs = append(errs, validateName(a.Name, at.Child("name"), seenNames)...)
		seenNames[a.Name] = true
		switch {
		case a.Type != Webhook && a.Webhook != nil:
			errs = append(errs, field.Invalid(at.Child("webhook"), "non-null", "may only be specified when type=Webhook"))
		case a.Type == Webhook && a.Webhook == nil:
			errs = append(errs, field.Required(at.Child("webhook"), "required when type=Webhook"))
		case a.Type == Webhook:
			errs = append(errs, validateWebhook(a.Webhook, at)...)
		}
	}
	return errs
}

func validateName(name string, at *field.Path, seen map[string]bool) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case seen[name]:
		return field.ErrorList{field.Duplicate(at, name)}
	}
	if wrong := utilvalidation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return field.ErrorList{field.Invalid(at, name, "authorizer name is invalid: "+strings.Join(wrong, ", "))}
	}
	return nil
}

func validateWebhook(w *apiserver.WebhookConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch t := w.Timeout.Duration; {
	case t == 0:
		errs = append(errs, field.Required(at.Child("timeout"), ""))
	case t > maxTimeout || t < 0:
		errs = append(errs, field.Invalid(at.Child("timeout"), t.String(), "must be > 0s and <= 30s"))
	}
	for name, ttl := range map[string]time.Duration{"authorizedTTL": w.AuthorizedTTL.Duration,
		"unauthorizedTTL": w.UnauthorizedTTL.Duration} {
		if ttl < 0 {
			errs = append(errs, field.Invalid(at.Child(name), ttl.String(), "must be > 0s"))
		}
	}
	errs = append(errs, oneOf(at.Child("subjectAccessReviewVersion"), w.SubjectAccessReviewVersion, "v1", "v1beta1")...)
	if path := at.Child("matchConditionSubjectAccessReviewVersion"); w.MatchConditionSubjectAccessReviewVersion != "" {
		errs = append(errs, oneOf(path, w.MatchConditionSubjectAccessReviewVersion, "v1")...)
	} else if len(w.MatchConditions) > 0 {
		errs = append(errs, field.Required(path, "required if match conditions are specified"))
	}
	errs = append(errs, oneOf(at.Child("failurePolicy"), w.FailurePolicy, "NoOpinion", "Deny")...)
	errs = append(errs, validateConnection(&w.ConnectionInfo, at.Child("connectionInfo"))...)
	_, wrong := Conditions(w, at)
	return append(errs, wrong...)
}

// Conditions compiles the match conditions of a webhook, nil if it has none.
func Conditions(w *apiserver.WebhookConfiguration, at *field.Path) (*webhookauthorizer.Conditions, field.ErrorList) {
	expressions := make([]string, len(w.MatchConditions))
	for i := range w.MatchConditions {
		expressions[i] = w.MatchConditions[i].Expression
	}
	return webhookauthorizer.Compile(expressions, at.Child("matchConditions"))
}

func oneOf(at *field.Path, value string, supported ...string) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(supported, value):
		return field.ErrorList{field.NotSupported(at, value, supported)}
	}
	return nil
}

func validateConnection(c *apiserver.WebhookConnectionInfo, at *field.Path) field.ErrorList {
	path := at.Child("kubeConfigFile")
	switch c.Type {
	case kubeconfigFile:
	case inCluster:
		if c.KubeConfigFile != nil {
			return field.ErrorList{field.Invalid(path, *c.KubeConfigFile, "can only be set when type=KubeConfigFile")}
		}
		return nil
	default:
		return oneOf(at.Child("type"), c.Type, inCluster, kubeconfigFile)
	}
	if c.KubeConfigFile == nil || *c.KubeConfigFile == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	file := *c.KubeConfigFile
	if !filepath.IsAbs(file) {
		return field.ErrorList{field.Invalid(path, file, "must be an absolute path")}
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(path, file, fmt.Sprintf("error loading file: %v", err))}
	case !info.Mode().IsRegular():
		return field.ErrorList{field.Invalid(path, file, "must be a regular file")}
	}
	return nil
}

// ErrInCluster is returned for a webhook of type InClusterConfig. The server does not run in a
// pod of its cluster, so it has no in-cluster credentials.
var ErrInCluster = errors.New(
	"connectionInfo.type InClusterConfig cannot be used: the server does not run in a pod of a cluster")

// Kubeconfig returns the path of the kubeconfig file of a webhook.
func Kubeconfig(w *apiserver.WebhookConfiguration) (string, error) {
	if w.ConnectionInfo.Type == inCluster {
		return "", ErrInCluster
	}
	return *w.ConnectionInfo.KubeConfigFile, nil
}
