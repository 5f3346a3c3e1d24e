package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// projection validates the sources of a projected volume.
type projection struct {
	volume *field.Path
	files  sets.Set[string] // the paths of the files of all sources
	errs   field.ErrorList
}

func validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	v := &projection{volume: at, files: sets.New[string]()}
	v.add(fileMode(at.Child("defaultMode"), p.DefaultMode))
	v.add(fileOwner(at.Child("defaultUser"), p.DefaultUser))
	for i := range p.Sources {
		v.validate(&p.Sources[i], at.Child("sources").Index(i))
	}
	return v.errs
}

func (pr *projection) add(errs field.ErrorList) { pr.errs = append(pr.errs, errs...) }

// unique requires that no other source has a file with this path. The errors are about the volume, and show value.
func (pr *projection) unique(file, value string) {
	pr.add(field.InvalidIf(pr.files.Has(file), pr.volume, value, "conflicting duplicate paths"))
	pr.files.Insert(file)
}

// uniqueIfSet is unique for a path that may be missing.
func (pr *projection) uniqueIfSet(file, value string) {
	if file != "" {
		pr.unique(file, value)
	}
}

// validate validates one item of sources. An item without a source is valid, and gives a warning.
func (pr *projection) validate(p *corev1.VolumeProjection, at *field.Path) {
	n := 0
	source := func(name string, set bool, validate func(*field.Path)) {
		if set {
			n++
			validate(at.Child(name))
		}
	}
	source("secret", p.Secret != nil, func(at *field.Path) { pr.keys(p.Secret.Name, p.Secret.Items, at) })
	source("configMap", p.ConfigMap != nil, func(at *field.Path) { pr.keys(p.ConfigMap.Name, p.ConfigMap.Items, at) })
	source("downwardAPI", p.DownwardAPI != nil, func(at *field.Path) {
		for i := range p.DownwardAPI.Items {
			item := &p.DownwardAPI.Items[i]
			pr.add(validateDownwardFile(item, at))
			pr.uniqueIfSet(item.Path, item.Path)
		}
	})
	source("serviceAccountToken", p.ServiceAccountToken != nil, func(at *field.Path) { pr.token(p.ServiceAccountToken, at) })
	source("clusterTrustBundle", p.ClusterTrustBundle != nil, func(at *field.Path) { pr.bundle(p.ClusterTrustBundle, at) })
	source("podCertificate", p.PodCertificate != nil, func(at *field.Path) { pr.certificate(p.PodCertificate, at) })
	pr.add(field.ForbiddenIf(n > 1, at, "may not specify more than 1 volume type per source"))
}

// keys validates the keys of the Secret or ConfigMap of that name.
// Without items, all keys become files. Their names are not known here, so they are not compared.
func (pr *projection) keys(name string, items []corev1.KeyToPath, at *field.Path) {
	pr.add(field.NotEmpty(at.Child("name"), name))
	pr.add(validateKeyToPaths(items, at.Child("items")))
	for i := range items {
		pr.uniqueIfSet(items[i].Path, name)
	}
}

// token validates the source of a service account token. The kubelet renews the token before it expires. The
// limits are those of a TokenRequest.
func (pr *projection) token(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	const shortest, longest = 10 * 60, 1 << 32 // seconds
	seconds := at.Child("expirationSeconds")
	switch s := t.ExpirationSeconds; {
	case s == nil:
		pr.add(field.ErrorList{field.Required(seconds, "")})
	case *s < shortest:
		pr.add(field.ErrorList{field.Invalid(seconds, *s, "may not specify a duration less than 10 minutes")})
	case *s > longest:
		pr.add(field.ErrorList{field.Invalid(seconds, *s, "may not specify a duration larger than 2^32 seconds")})
	}
	// The path of the error has no source.
	pr.add(field.NotEmptyAnd(pr.volume.Child("path"), t.Path, validateLocalFilePath))
	pr.add(fileOwner(at.Child("user"), t.User))
}

// bundle validates a source with certificates of authorities (KEP-3257): either one ClusterTrustBundle by its
// name, or all bundles of a signer that match the selector.
func (pr *projection) bundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		pr.add(field.ErrorList{field.Invalid(at, declare.Internal(b), "only one of name and signerName may be used")})
	case b.Name != nil:
		pr.add(field.RequiredIf(*b.Name == "", at.Child("name"), "must be a valid object name"))
		for _, message := range bundleNameProblems(*b.Name) {
			pr.add(field.ErrorList{field.Invalid(at.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+message)})
		}
		pr.add(field.InvalidIf(b.LabelSelector != nil, at.Child("labelSelector"), b.LabelSelector,
			"labelSelector must be unset if name is specified"))
	case b.SignerName != nil:
		pr.add(field.RequiredIf(*b.SignerName == "", at.Child("signerName"), "must be a valid signer name"))
		pr.add(ValidateSignerName(at.Child("signerName"), *b.SignerName))
		pr.add(field.LabelSelector(at.Child("labelSelector"), b.LabelSelector))
	default:
		pr.add(field.ErrorList{field.Required(at, "either name or signerName must be specified")})
	}
	pr.add(field.NotEmpty(at.Child("path"), b.Path))
	pr.add(fileOwner(at.Child("user"), b.User))
	pr.add(validateLocalFilePath(at.Child("path"), b.Path))
	pr.unique(b.Path, b.Path)
}

// bundleNameProblems returns what is wrong with the name of a ClusterTrustBundle. The name of a bundle with a signer begins
// with the name of the signer, in which colons stand for slashes, and a colon.
// For example, a bundle of the signer example.com/ca has the name example.com:ca:NAME.
func bundleNameProblems(name string) []string {
	end := strings.LastIndex(name, ":")
	if end == 0 {
		return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
	}
	if before := name[:max(end, 0)]; strings.Contains(before, "/") {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s:",
			strings.ReplaceAll(before, ":", "/"), strings.ReplaceAll(before, "/", ":"))}
	}
	return apivalidation.NameIsDNSSubdomain(name[end+1:], false)
}

var certificateKeyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

// certificate validates a source with a key and a certificate of the pod (KEP-4317). The path
// credentialBundlePath is preferred: with two files, the pod may read a key and a certificate that do not
// belong together.
func (pr *projection) certificate(c *corev1.PodCertificateProjection, at *field.Path) {
	pr.add(ValidateSignerName(at.Child("signerName"), c.SignerName))
	pr.add(ValidateUserAnnotations(c.UserAnnotations, at.Child("userAnnotations")))
	pr.add(fileOwner(at.Child("user"), c.User))
	if !slices.Contains(certificateKeyTypes, c.KeyType) {
		pr.add(field.ErrorList{field.NotSupported(at.Child("keyType"), c.KeyType, certificateKeyTypes)})
	}
	pr.add(field.Optional(at.Child("maxExpirationSeconds"), c.MaxExpirationSeconds,
		func(at *field.Path, n int32) field.ErrorList { return validateCertificateLife(at, n, c.SignerName) }))
	found := false
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if file.path == "" {
			continue
		}
		found = true
		pr.add(validateLocalFilePath(at.Child(file.name), file.path))
		pr.unique(file.path, file.path)
	}
	pr.add(field.RequiredIf(!found, at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
}

// validateCertificateLife validates for how many seconds a certificate may be valid.
// The limits are documented in the API: at least 1 hour, at most 91 days, and for signers of Kubernetes at most
// 24 hours.
func validateCertificateLife(path *field.Path, seconds int32, signer string) field.ErrorList {
	const shortest, ofKubernetes = 60 * 60, 24 * 60 * 60
	most := int32(91 * 24 * 60 * 60)
	if IsKubernetesSigner(signer) {
		most = ofKubernetes
	}
	errs := field.InvalidIf(seconds < shortest, path, seconds,
		fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", shortest))
	return append(errs, field.InvalidIf(seconds > most, path, seconds,
		fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))...)
}

// IsKubernetesSigner reports whether the domain of a signer belongs to Kubernetes.
func IsKubernetesSigner(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	return domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// ValidateUserAnnotations validates what a pod asks its signer for.
// Keys need a domain, such as example.com/key. All keys and values together may have 256 KiB.
func ValidateUserAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key := range annotations {
		errs = append(errs, validation.IsDomainPrefixedKey(path.K8s(), strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// ValidateSignerName requires domain/name, where the domain has at least two labels. Errors
// name only the first invalid label of the domain and of the name.
func ValidateSignerName(path *field.Path, signer string) field.ErrorList {
	if signer == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, name, ok := strings.Cut(signer, "/")
	if !ok || strings.Contains(name, "/") {
		return field.ErrorList{
			field.Invalid(path, signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	// The name of a signer may have 571 characters: the domain 253, the slash, and the name 317, which is a
	// subdomain, a dot and a label.
	const (
		longestDomain = validation.DNS1123SubdomainMaxLength
		longestName   = validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 1
		longest       = longestDomain + 1 + longestName
	)
	errs := field.MaxLength(path, domain, longestDomain)
	errs = append(errs, validateSignerPart(path, domain, validation.IsDNS1123Label)...)
	errs = append(errs, field.InvalidIf(!strings.Contains(domain, "."), path, domain,
		"should be a domain with at least two segments separated by dots")...)
	errs = append(errs, validateSignerPart(path, name, validation.IsDNS1123Subdomain)...)
	return append(errs, field.MaxLength(path, signer, longest)...)
}

func validateSignerPart(path *field.Path, part string, wrong func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(part, ".") {
		var errs field.ErrorList
		for _, text := range wrong(label) {
			errs = append(errs, field.Invalid(path, part, fmt.Sprintf("validating label %q: %s", label, text)))
		}
		if errs != nil {
			return errs
		}
	}
	return nil
}
