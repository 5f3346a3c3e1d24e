package celrules

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

// reasons returns the allowed values of the field reason.
func reasons() []apiextensionsv1.FieldValueErrorReason {
	return []apiextensionsv1.FieldValueErrorReason{
		apiextensionsv1.FieldValueDuplicate,
		apiextensionsv1.FieldValueForbidden,
		apiextensionsv1.FieldValueInvalid,
		apiextensionsv1.FieldValueRequired,
	}
}

// CheckTexts returns the errors in the fields of rules other than the expressions. path is the path of the schema
// of the rules. Check calls it for all nodes that it visits. Rules below a combinator, or in a schema that is not
// structural, are checked by CheckTexts only. With a nil schema every fieldPath is accepted.
func CheckTexts(path *field.Path, rules []apiextensionsv1.ValidationRule, s *structuralschema.Schema) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		errs = append(errs, checkTexts(path.Child("x-kubernetes-validations").Index(i), &rules[i], s)...)
	}
	return errs
}

func checkTexts(path *field.Path, r *apiextensionsv1.ValidationRule, s *structuralschema.Schema) field.ErrorList {
	var errs field.ErrorList
	rule, message := strings.TrimSpace(r.Rule), strings.TrimSpace(r.Message)
	switch {
	case rule == "":
		errs = append(errs, field.Required(path.Child("rule"), "rule is not specified"))
	case r.Message != "" && message == "":
		errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must be non-empty if specified"))
	case breaksLines(message):
		errs = append(errs, field.Invalid(path.Child("message"), r.Message, "must not contain line breaks"))
	case breaksLines(rule) && message == "":
		errs = append(errs, field.Required(path.Child("message"), "message must be specified if rule contains line breaks"))
	}
	if r.MessageExpression != "" && strings.TrimSpace(r.MessageExpression) == "" {
		errs = append(
			errs, field.Required(path.Child("messageExpression"), "messageExpression must be non-empty if specified"),
		)
	}
	if r.Reason != nil && !isReason(*r.Reason) {
		errs = append(errs, field.NotSupported(path.Child("reason"), *r.Reason, reasons()))
	}
	return append(errs, checkFieldPath(path.Child("fieldPath"), r.FieldPath, s)...)
}

func isReason(r apiextensionsv1.FieldValueErrorReason) bool {
	for _, known := range reasons() {
		if r == known {
			return true
		}
	}
	return false
}

func checkFieldPath(path *field.Path, fieldPath string, s *structuralschema.Schema) field.ErrorList {
	if fieldPath == "" {
		return nil
	}
	var errs field.ErrorList
	if strings.TrimSpace(fieldPath) == "" {
		errs = append(errs, field.Invalid(path, fieldPath, "must be non-empty if specified"))
	}
	if breaksLines(fieldPath) {
		errs = append(errs, field.Invalid(path, fieldPath, "must not contain line breaks"))
	}
	if s != nil {
		if _, _, err := FieldPath(s, fieldPath, true); err != nil {
			errs = append(errs, field.Invalid(path, fieldPath, "must be a valid path"))
		}
	}
	return errs
}

func breaksLines(s string) bool { return strings.ContainsAny(s, "\n\r") }
