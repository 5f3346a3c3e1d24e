package apiextensions

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// checkConversion validates the conversion. Errors have the field names of kube-apiserver's
// internal version, where the fields of the webhook are beside the strategy.
func (c *specChecker) checkConversion() {
	conversion, path := c.spec.Conversion, c.path.Child("conversion")
	if conversion == nil {
		return
	}
	c.add(field.InvalidIf(conversion.Strategy != apiextensionsv1.NoneConverter && c.spec.PreserveUnknownFields,
		path.Child("strategy"), conversion.Strategy, "must be None if spec.preserveUnknownFields is true"))
	c.add(field.RequiredOneOf(path.Child("strategy"), conversion.Strategy, apiextensionsv1.NoneConverter,
		apiextensionsv1.WebhookConverter))
	webhook := conversion.Webhook
	if webhook == nil {
		webhook = &apiextensionsv1.WebhookConversion{}
	}
	client, versions := path.Child("webhookClientConfig"), path.Child("conversionReviewVersions")
	if conversion.Strategy == apiextensionsv1.WebhookConverter {
		c.checkClient(webhook.ClientConfig, client)
		c.add(declare.ValidateReviewVersions(webhook.ConversionReviewVersions, "",
			c.previous.lacksReviewVersion(), versions))
		return
	}
	const unset = "should not be set when strategy is not set to Webhook"
	c.add(field.ForbiddenIf(webhook.ClientConfig != nil, client, unset))
	c.add(field.ForbiddenIf(len(webhook.ConversionReviewVersions) > 0, versions, unset))
}

// checkClient validates how the conversion webhook is called. A bundle that was wrong before, or that belongs to
// a definition that is not established yet, is not checked; see allowsAnyBundle.
func (c *specChecker) checkClient(client *apiextensionsv1.WebhookClientConfig, path *field.Path) {
	if client == nil {
		c.required(path, "required when strategy is set to Webhook")
		return
	}
	c.add(declare.ValidateWebhookClient(client.URL, (*declare.WebhookService)(client.Service), path))
	if len(client.CABundle) > 0 && !c.previous.allowsAnyBundle() {
		if err := checkCABundle(client.CABundle); err != nil {
			c.invalid(path.Child("caBundle"), client.CABundle, err.Error())
		}
	}
}

// checkCABundle returns the error that a TLS client would return for the bundle.
// One readable certificate is enough: a TLS client skips the other blocks. Only without any does the loop look
// for the first error.
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
