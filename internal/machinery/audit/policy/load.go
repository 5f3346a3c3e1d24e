package policy

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
)

// Load reads a policy file with read, as os.ReadFile does. Unknown and duplicate fields only cause a warning in the log.
func Load(path string, read func(path string) ([]byte, error), log *slog.Logger) (*Policy, error) {
	content, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("loading audit policy file: failed to read file path %q: %w", path, err)
	}
	p, err := Parse(content, log)
	if err != nil {
		return nil, fmt.Errorf("loading audit policy file: %w: from file %v", err, path)
	}
	return p, nil
}

// Parse parses a policy in YAML or JSON.
func Parse(content []byte, log *slog.Logger) (*Policy, error) {
	p, err := decode(content, log)
	if err != nil {
		return nil, err
	}
	if errs := Validate(p); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if len(p.Rules) == 0 {
		return nil, errors.New("loaded illegal policy with 0 rules")
	}
	return New(p), nil
}

func decode(content []byte, log *slog.Logger) (*auditv1.Policy, error) {
	s := runtime.NewScheme()
	if err := auditv1.AddToScheme(s); err != nil {
		return nil, err
	}
	read := func(options ...serializer.CodecFactoryOptionsMutator) (*auditv1.Policy, error) {
		obj, gvk, err := serializer.NewCodecFactory(s, options...).UniversalDeserializer().Decode(content, nil, nil)
		if err != nil {
			return nil, err
		}
		p, ok := obj.(*auditv1.Policy)
		if !ok {
			return nil, fmt.Errorf("unable to decode %s into Policy", gvk)
		}
		return p, nil
	}
	p, err := read(serializer.EnableStrict)
	if err == nil {
		return p, nil
	}
	if !runtime.IsStrictDecodingError(err) {
		return nil, fmt.Errorf("failed decoding: %w", err)
	}
	p, lenient := read()
	if lenient != nil {
		return nil, fmt.Errorf("failed lenient decoding: %w", lenient)
	}
	log.Warn("the audit policy has unknown or duplicate fields, which are ignored", "error", err)
	return p, nil
}

var (
	levelNames = []string{string(auditv1.LevelNone), string(auditv1.LevelMetadata), string(auditv1.LevelRequest),
		string(auditv1.LevelRequestResponse)}
	stageNames = []string{string(auditv1.StageRequestReceived), string(auditv1.StageResponseStarted),
		string(auditv1.StageResponseComplete), string(auditv1.StagePanic)}
)

// Validate returns the errors of a policy.
func Validate(p *auditv1.Policy) field.ErrorList {
	errs := validateStages(p.OmitStages, field.NewPath("omitStages"))
	for i := range p.Rules {
		errs = append(errs, validateRule(&p.Rules[i], field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *auditv1.PolicyRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Level == "" {
		errs = append(errs, field.Required(at.Child("level"), ""))
	} else if _, ok := audit.ParseLevel(r.Level); !ok {
		errs = append(errs, field.NotSupported(at.Child("level"), r.Level, levelNames))
	}
	urls := at.Child("nonResourceURLs")
	for i, url := range r.NonResourceURLs {
		errs = append(errs, validateURL(url, urls.Index(i))...)
	}
	for i := range r.Resources {
		errs = append(errs, validateResources(&r.Resources[i], at.Child("resources"))...)
	}
	errs = append(errs, validateStages(r.OmitStages, at.Child("omitStages"))...)
	if len(r.NonResourceURLs) > 0 && (len(r.Resources) > 0 || len(r.Namespaces) > 0) {
		errs = append(errs,
			field.Invalid(urls, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func validateURL(url string, at *field.Path) field.ErrorList {
	if url == "*" {
		return nil
	}
	var errs field.ErrorList
	if !strings.HasPrefix(url, "/") {
		errs = append(errs, field.Invalid(at, url, "non-resource URL rules must begin with a '/' character"))
	}
	if url != "" && strings.Contains(url[:len(url)-1], "*") {
		errs = append(errs, field.Invalid(at, url, "non-resource URL wildcards '*' must be the final character of the rule"))
	}
	return errs
}

func validateResources(g *auditv1.GroupResources, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if g.Group != "" && g.Group != "*" {
		if words := apivalidation.NameIsDNSSubdomain(g.Group, false); len(words) > 0 {
			errs = append(errs, field.Invalid(at.Child("group"), g.Group, strings.Join(words, ",")))
		}
	}
	if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
		errs = append(errs,
			field.Invalid(at.Child("resourceNames"), g.ResourceNames, "using resourceNames requires at least one resource"))
	}
	return errs
}

func validateStages(list []auditv1.Stage, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, stage := range list {
		if audit.ParseStages([]auditv1.Stage{stage}) == 0 {
			errs = append(errs, field.Invalid(at.Index(i), string(stage), "allowed stages are "+strings.Join(stageNames, ",")))
		}
	}
	return errs
}
