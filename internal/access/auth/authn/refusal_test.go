package authn

import (
	"errors"
	"fmt"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestRefusalOf(t *testing.T) {
	expired := fmt.Errorf("oidc: %w", Refuse(ReasonExpired, "https://i", errors.New("late")))
	for _, c := range []struct {
		err  error
		want Reason
	}{
		{errors.New("x"), ReasonOther},
		{ErrInvalidToken, ReasonUnknown},
		{expired, ReasonExpired},
		{utilerrors.NewAggregate([]error{ErrInvalidToken, utilerrors.NewAggregate([]error{errors.New("x"), expired})}), ReasonExpired},
		{Refuse(ReasonOther, "", expired), ReasonExpired},
	} {
		if got := RefusalOf(c.err); got.Reason != c.want || c.want == ReasonExpired && got.Issuer != "https://i" {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
	if Refuse(ReasonOther, "", nil) != nil {
		t.Error("no error becomes one")
	}
}
