package authn

import (
	"errors"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Reason is the reason why credentials are not accepted. It is one of a few words, for metrics and logs: the error
// itself may contain claims of a token.
type Reason string

// The reasons. docs/authentication.md says what to do about each.
const (
	ReasonUnknown     Reason = "unknown"     // no method knows the token
	ReasonMalformed   Reason = "malformed"   // the credentials cannot be read
	ReasonSignature   Reason = "signature"   // no key of the issuer verifies the signature
	ReasonExpired     Reason = "expired"     // too late
	ReasonNotYet      Reason = "not-yet"     // too early
	ReasonAudience    Reason = "audience"    // the token is for somebody else
	ReasonClaims      Reason = "claims"      // a claim is missing or not what the configuration asks for
	ReasonObject      Reason = "object"      // the object that a service account token is bound to is gone or another one
	ReasonIssuer      Reason = "issuer"      // the keys of the issuer cannot be read
	ReasonCertificate Reason = "certificate" // no authority has signed the certificate, or it is for another use
	ReasonOther       Reason = "other"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonUnknown, ReasonMalformed, ReasonSignature, ReasonExpired, ReasonNotYet, ReasonAudience, ReasonClaims, ReasonObject, ReasonIssuer,
		ReasonCertificate, ReasonOther,
	}
}

// Refusal is an error of credentials that are not accepted, with its reason. It has the text of Err.
type Refusal struct {
	Reason Reason
	Issuer string // the configured issuer that has refused a token; "" if there is none
	Err    error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the error.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns err with a reason. It returns err unchanged if it is nil or already has a reason.
func Refuse(reason Reason, issuer string, err error) error {
	if err == nil || errors.As(err, new(*Refusal)) {
		return err
	}
	return &Refusal{reason, issuer, err}
}

// RefusalOf returns the first refusal with a reason among the errors of several methods. Such a reason says more than the error
// that no method knows the token.
func RefusalOf(err error) Refusal {
	found := Refusal{Reason: ReasonOther, Err: err}
	visit(err, func(e error) bool {
		var r *Refusal
		switch {
		case errors.As(e, &r):
			found = *r
			return false
		case errors.Is(e, ErrInvalidToken):
			found.Reason = ReasonUnknown
		}
		return true
	})
	return found
}

// visit calls f for the errors that err consists of, until f returns false.
func visit(err error, f func(error) bool) bool {
	all, ok := err.(utilerrors.Aggregate)
	if !ok {
		return f(err)
	}
	for _, e := range all.Errors() {
		if !visit(e, f) {
			return false
		}
	}
	return true
}
