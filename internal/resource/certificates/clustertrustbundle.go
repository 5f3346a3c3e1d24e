package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
	"github.com/keelson-dev/keelson/internal/resource/internal/table"
)

type bundle = certificatesv1.ClusterTrustBundle

func clusterTrustBundle() *registry.Kind {
	return &registry.Kind{
		Names: registry.Names{
			Group: "certificates.k8s.io", Package: "certificates", Resource: "clustertrustbundles",
			Name: "ClusterTrustBundle",
		},
		Versions: []registry.Version{
			declare.Version[bundle]("v1", nil),
			declare.SameMessage[certificatesv1beta1.ClusterTrustBundle, bundle]("v1beta1", nil),
			declare.SameMessage[certificatesv1alpha1.ClusterTrustBundle, bundle]("v1alpha1", nil),
		},
		Storage: registry.Storage{
			Version: "v1", GroupVersion: "certificates.k8s.io/v1beta1", Path: "clustertrustbundles",
		},
		Metadata: registry.Metadata{
			// Which names are valid depends on the signer; see validateBundleName.
			ValidateName: func(string, bool) []string { return nil },
			OnUpdate:     registry.MetaWhole,
		},
		Selection: registry.Selection{
			Fields:     []registry.Field{{Name: "spec.signerName", Path: []int32{2, 1}}},
			FieldError: declare.FieldLabel,
		},
		Strategy: registry.Strategy[*bundle]{
			ValidateCreate: func(b *bundle) field.ErrorList { return validateBundle(b, true) },
			ValidateUpdate: func(b, old *bundle) field.ErrorList {
				return append(validateBundle(b, b.Spec.TrustBundle != old.Spec.TrustBundle),
					declare.Immutable(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))...)
			},
		}.Untyped(),
		Table: registry.Table[*bundle]{
			Columns: []metav1.TableColumnDefinition{
				table.Name,
				table.Column("SignerName", "string", certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"]),
			},
			Cells: func(b *bundle) []any { return []any{b.Name, table.OrNone(b.Spec.SignerName)} },
		}.Untyped(),
	}
}

// validateBundle validates the name and the signer, and the certificates if they have changed.
func validateBundle(b *bundle, changed bool) field.ErrorList {
	errs := field.Messages(field.NewPath("metadata", "name"), b.Name, validateBundleName(b.Name, b.Spec.SignerName))
	errs = append(errs, field.IfSet(field.NewPath("spec", "signerName"), b.Spec.SignerName, core.ValidateSignerName)...)
	if changed {
		errs = append(errs, validateTrustBundle(b.Spec.TrustBundle, field.NewPath("spec", "trustBundle"))...)
	}
	return errs
}

// validateBundleName requires that the name of a bundle of a signer begins with the name of the signer, with colons in
// place of slashes.
// For example, bundles of example.com/foo are named example.com:foo:v1. A bundle without a signer has no colon,
// so it can never take the name of a bundle of a signer, which needs the permission attest.
func validateBundleName(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, false)
}

// maxTrustBundleSize is in bytes of PEM.
const maxTrustBundleSize = 1 << 20

// validateTrustBundle validates the certificates. It does not show the value in errors, which may be as long as
// maxTrustBundleSize. Text between the blocks is ignored. Duplicates are searched for only among valid blocks,
// and reported in the order of their first block.
func validateTrustBundle(text string, path *field.Path) field.ErrorList {
	if len(text) > maxTrustBundleSize {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundleSize)}
	}
	var errs field.ErrorList
	invalid := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	var order []string
	places := map[string][]int{} // by certificate
	rest := []byte(text)
	for i := 0; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if problem := checkAnchor(block); problem != "" {
			invalid("entry %d %s", i, problem)
			continue
		}
		key := string(block.Bytes)
		if places[key] == nil {
			order = append(order, key)
		}
		places[key] = append(places[key], i)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(places) == 0 {
		invalid("at least one trust anchor must be provided")
	}
	for key := range slices.Values(order) {
		if len(places[key]) > 1 {
			invalid("duplicate trust anchor (indices %v)", places[key])
		}
	}
	return errs
}

// checkAnchor returns what is wrong with a block of a trust bundle, "" if nothing is.
func checkAnchor(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) != 0 {
		return "has PEM block headers"
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		// A certificate without the CA bit cannot be a trust anchor: it may not sign others.
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
