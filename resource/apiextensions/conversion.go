package apiextensions

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reviewVersions are the known versions of ConversionReview. A webhook has to accept one of
// them.
var reviewVersions = []string{"v1", "v1beta1"}

// checkConversion validates the conversion. Errors have the field names of kube-apiserver's
// internal version, where the fields of the webhook are beside the strategy.
func (c *specChecker) checkConversion() {
	conversion, path := c.spec.Conversion, c.path.Child("conversion")
	if conversion == nil {
		return
	}
	if conversion.Strategy != apiextensionsv1.NoneConverter && c.spec.PreserveUnknownFields {
		c.invalid(path.Child("strategy"), conversion.Strategy, "must be None if spec.preserveUnknownFields is true")
	}
	c.checkChoice(path.Child("strategy"), string(conversion.Strategy), string(apiextensionsv1.NoneConverter),
		string(apiextensionsv1.WebhookConverter))
	webhook := conversion.Webhook
	if webhook == nil {
		webhook = &apiextensionsv1.WebhookConversion{}
	}
	client, versions := path.Child("webhookClientConfig"), path.Child("conversionReviewVersions")
	if conversion.Strategy == apiextensionsv1.WebhookConverter {
		c.checkClient(webhook.ClientConfig, client)
		c.checkReviewVersions(webhook.ConversionReviewVersions, versions)
		return
	}
	const unset = "should not be set when strategy is not set to Webhook"
	if webhook.ClientConfig != nil {
		c.errs = append(c.errs, field.Forbidden(client, unset))
	}
	if len(webhook.ConversionReviewVersions) > 0 {
		c.errs = append(c.errs, field.Forbidden(versions, unset))
	}
}

func (c *specChecker) checkClient(client *apiextensionsv1.WebhookClientConfig, path *field.Path) {
	if client == nil {
		c.required(path, "required when strategy is set to Webhook")
		return
	}
	switch {
	case (client.URL == nil) == (client.Service == nil):
		c.required(path, "exactly one of url or service is required")
	case client.URL != nil:
		c.checkURL(*client.URL, path.Child("url"))
	default:
		c.checkService(client.Service, path.Child("service"))
	}
	if len(client.CABundle) > 0 && !c.previous.allowsAnyBundle() {
		if err := checkCABundle(client.CABundle); err != nil {
			c.invalid(path.Child("caBundle"), client.CABundle, err.Error())
		}
	}
}

// checkCABundle returns the error that a TLS client would return for the bundle.
func checkCABundle(bundle []byte) error {
	if x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil
	}
	for len(bundle) > 0 {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("unable to load root certificates: failed to parse certificate: %w", err)
		}
	}
	return errors.New("unable to load root certificates: no valid certificate authority data seen")
}

func (c *specChecker) checkURL(text string, path *field.Path) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		c.required(path, "url must be a valid URL: "+err.Error()+form)
		return
	}
	if u.Scheme != "https" {
		c.invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form)
	}
	if u.Host == "" {
		c.invalid(path, u.Host, "host must be specified"+form)
	}
	if u.User != nil {
		c.invalid(path, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		c.invalid(path, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		c.invalid(path, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

func (c *specChecker) checkService(s *apiextensionsv1.ServiceReference, path *field.Path) {
	// kube-apiserver reports a missing name as a missing namespace.
	if s.Namespace == "" {
		c.required(path.Child("name"), "")
	}
	if s.Name == "" {
		c.required(path.Child("namespace"), "")
	}
	var port int32
	if s.Port != nil {
		port = *s.Port
	}
	if msgs := validation.IsValidPortNum(int(port)); len(msgs) > 0 {
		c.invalid(path.Child("port"), port, "port is not valid: "+strings.Join(msgs, ", "))
	}
	if s.Path != nil {
		c.checkServicePath(*s.Path, path.Child("path"))
	}
}

func (c *specChecker) checkServicePath(text string, path *field.Path) {
	switch text {
	case "", "/":
		return
	case "//":
		c.invalid(path, text, "segment[0] may not be empty")
		return
	}
	if text[0] != '/' {
		c.invalid(path, text, "must start with a '/'")
	}
	// Like kube-apiserver, this skips the first byte even if it is not a slash.
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			c.invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range validation.IsDNS1123Subdomain(segment) {
			c.invalid(path, text, fmt.Sprintf("segment[%d]: %v", i, msg))
		}
	}
}

func (c *specChecker) checkReviewVersions(versions []string, path *field.Path) {
	if len(versions) == 0 {
		c.required(path, "")
		return
	}
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			c.invalid(path.Index(i), v, "duplicate version")
			continue
		}
		for _, msg := range validation.IsDNS1035Label(v) {
			c.invalid(path.Index(i), v, msg)
		}
	}
	if !hasReviewVersion(versions) && !c.previous.lacksReviewVersion() {
		c.invalid(path, versions, "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}

func hasReviewVersion(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}
