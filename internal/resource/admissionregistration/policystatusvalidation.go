package admissionregistration

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/client-go/util/jsonpath"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

// validatePolicyStatus validates what the check of types has found, and the conditions.
func validatePolicyStatus(s *admissionv1.ValidatingAdmissionPolicyStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.TypeChecking != nil {
		for i := range s.TypeChecking.ExpressionWarnings {
			at := path.Child("typeChecking", "expressionWarnings").Index(i)
			errs = append(errs, validateExpressionWarning(&s.TypeChecking.ExpressionWarnings[i], at)...)
		}
	}
	return append(errs, metav1validation.ValidateConditions(s.Conditions, path.Child("conditions").K8s())...)
}

func validateExpressionWarning(w *admissionv1.ExpressionWarning, path *field.Path) field.ErrorList {
	errs := field.RequiredIf(w.Warning == "", path.Child("warning"), "")
	at, ref := path.Child("fieldRef"), strings.TrimSpace(w.FieldRef)
	if ref == "" {
		return append(errs, field.Required(at, ""))
	}
	// A reference is a path such as spec.validations[0].expression. The parser takes text outside braces as
	// literal text, so the braces are added here.
	if err := jsonpath.New("spec").Parse("{" + ref + "}"); err != nil {
		errs = append(errs, field.Invalid(at, ref, fmt.Sprintf("invalid JSONPath: %v", err)))
	}
	return errs
}
