package field

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/internal/machinery/scheme/names"
)

// Pattern returns a function that returns a regular expression, which is compiled at the first call: a program has many,
// and uses few of them. The function panics if the expression is not valid.
func Pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// A rule returns the errors of a value at a path, and nil for a valid value. It allocates nothing for a valid value.

// InvalidIf returns the error Invalid if the value breaks a rule.
func InvalidIf[T any](broken bool, p *Path, value T, detail string) ErrorList {
	if broken {
		return ErrorList{Invalid(p, value, detail)}
	}
	return nil
}

// RequiredIf returns the error Required if a field is missing.
func RequiredIf(missing bool, p *Path, detail string) ErrorList {
	if missing {
		return ErrorList{Required(p, detail)}
	}
	return nil
}

// ForbiddenIf returns the error Forbidden if a field is set that must not be set.
func ForbiddenIf(set bool, p *Path, detail string) ErrorList {
	if set {
		return ErrorList{Forbidden(p, detail)}
	}
	return nil
}

// DuplicateIf returns the error Duplicate if another element has the same value.
func DuplicateIf[T any](repeated bool, p *Path, value T) ErrorList {
	if repeated {
		return ErrorList{Duplicate(p, value)}
	}
	return nil
}

// Joined returns an error Invalid that has all messages after a prefix, and nil if there is no message.
// kube-apiserver has some rules with one error for all messages, and some with one for each; see Messages.
// Clients see the difference in the causes of a Status.
func Joined[T any](p *Path, value T, prefix string, messages []string) ErrorList {
	if len(messages) == 0 {
		return nil
	}
	return ErrorList{Invalid(p, value, prefix+strings.Join(messages, ","))}
}

// Messages returns an error Invalid for each message.
func Messages[T any](p *Path, value T, messages []string) (errs ErrorList) {
	for _, m := range messages {
		errs = append(errs, Invalid(p, value, m))
	}
	return errs
}

// NotEmpty requires a value.
func NotEmpty[T ~string](p *Path, value T) ErrorList { return RequiredIf(value == "", p, "") }

// NotEmptyAnd requires a value, and applies a rule to it.
func NotEmptyAnd[T ~string](p *Path, value T, rule func(*Path, T) ErrorList) ErrorList {
	return RequiredAnd(p, value, "", rule)
}

// RequiredAnd is NotEmptyAnd with a detail of the error for an empty value.
func RequiredAnd[T ~string](p *Path, value T, detail string, rule func(*Path, T) ErrorList) ErrorList {
	if value == "" {
		return ErrorList{Required(p, detail)}
	}
	return rule(p, value)
}

// IfSet applies a rule to a value that is not empty.
func IfSet[T ~string](p *Path, value T, rule func(*Path, T) ErrorList) ErrorList {
	if value == "" {
		return nil
	}
	return rule(p, value)
}

// Optional applies a rule to a value that is not nil.
func Optional[T any](p *Path, value *T, rule func(*Path, T) ErrorList) ErrorList {
	if value == nil {
		return nil
	}
	return rule(p, *value)
}

// IfPresent applies a rule to what a pointer points to, unless it is nil.
func IfPresent[T any](p *Path, value *T, rule func(*T, *Path) ErrorList) ErrorList {
	if value == nil {
		return nil
	}
	return rule(value, p)
}

// OneOf requires one of the allowed values. The error lists them in this order.
func OneOf[T ~string](p *Path, value T, allowed ...T) ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return ErrorList{NotSupported(p, value, allowed)}
}

// RequiredOneOf is OneOf with the error Required for an empty value.
func RequiredOneOf[T ~string](p *Path, value T, allowed ...T) ErrorList {
	if value == "" {
		return ErrorList{Required(p, "")}
	}
	return OneOf(p, value, allowed...)
}

// OptionalOneOf is OneOf for a value that may be nil.
func OptionalOneOf[T ~string](p *Path, value *T, allowed ...T) ErrorList {
	if value == nil {
		return nil
	}
	return OneOf(p, *value, allowed...)
}

// MandatoryOneOf is OneOf with the error Required for nil.
func MandatoryOneOf[T ~string](p *Path, value *T, allowed ...T) ErrorList {
	if value == nil {
		return ErrorList{Required(p, "")}
	}
	return OneOf(p, *value, allowed...)
}

// NonNegative requires a number of at least 0.
func NonNegative[T ~int32 | ~int64](p *Path, value T) ErrorList {
	if value >= 0 {
		return nil
	}
	return ErrorList{Invalid(p, int64(value), apivalidation.IsNegativeErrorMsg).WithOrigin("minimum")}
}

// AtLeast requires a number that is not less than least, if it is not nil.
func AtLeast[T ~int32 | ~int64](p *Path, value *T, least T, detail string) ErrorList {
	if value == nil || *value >= least {
		return nil
	}
	return ErrorList{Invalid(p, *value, detail)}
}

// InRange requires a number from low to high, including both.
func InRange(p *Path, value, low, high int64) ErrorList {
	if low <= value && value <= high {
		return nil
	}
	return ErrorList{Invalid(p, value, validation.InclusiveRangeError(int(low), int(high)))}
}

// MaxLength limits the length of a value in bytes. The error does not have the value.
func MaxLength[T ~string | ~[]byte](p *Path, value T, limit int) ErrorList {
	if len(value) <= limit {
		return nil
	}
	return ErrorList{TooLong(p, "", limit)}
}

// MaxItems limits the number of elements in a list or map.
func MaxItems(p *Path, number, limit int) ErrorList {
	if number <= limit {
		return nil
	}
	return ErrorList{TooMany(p, number, limit)}
}

// DNSLabel requires a label of RFC 1123.
func DNSLabel[T ~string](p *Path, value T) ErrorList {
	return Messages(p, value, names.IsDNS1123Label(string(value)))
}

// DNSSubdomain requires a subdomain of RFC 1123.
func DNSSubdomain[T ~string](p *Path, value T) ErrorList {
	return Messages(p, value, names.IsDNS1123Subdomain(string(value)))
}

// LabelKey requires a name with an optional DNS prefix, as keys of labels have.
// For example, app and example.com/app are accepted. The name after the slash has at most 63 characters.
func LabelKey[T ~string](p *Path, value T) ErrorList {
	return Messages(p, value, names.IsLabelKey(string(value)))
}

// LabelValue requires a value that a label can have.
func LabelValue(p *Path, value string) ErrorList {
	return Messages(p, value, names.IsLabelValue(value))
}

// PortNumber requires a port between 1 and 65535.
func PortNumber(p *Path, port int32) ErrorList {
	return Messages(p, port, validation.IsValidPortNum(int(port)))
}

// PortName requires the name of a port.
// It is a service name of RFC 6335, such as http or dns-tcp: at most 15 characters with at least one letter.
func PortName(p *Path, name string) ErrorList {
	return Messages(p, name, names.IsPortName(name))
}

// PathSegment requires a name that can be a segment of a URL path.
// A name that is . or .., or that contains / or %, is refused, because it would change the path of a request.
func PathSegment(p *Path, name string) ErrorList {
	return Messages(p, name, path.IsValidPathSegmentName(name))
}

// LabelSelector requires a valid selector, or none.
func LabelSelector(p *Path, selector *metav1.LabelSelector) ErrorList {
	if selector == nil {
		return nil
	}
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, p.K8s())
}
