package request

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// budget is a Response whose user may keep a number of bytes.
type budget struct {
	uncounted
	free int64
}

func (b *budget) Keep(n int64) bool {
	if n > b.free {
		return false
	}
	b.free -= n
	return true
}

// TestSelectorsAreCounted checks that long selectors are counted until the request ends, that short ones are not, and that nothing is
// parsed beyond the limits or for a user without memory.
func TestSelectorsAreCounted(t *testing.T) {
	b := &budget{free: 1 << 20}
	ctx := WithInfo(context.Background(), &Info{Response: b})
	if s, err := ServedLabels(ctx, "app=web,tier!=db"); err != nil || s.String() != "app=web,tier!=db" || b.free != 1<<20 {
		t.Errorf("a short selector: %v, %v, %d bytes free", s, err, b.free)
	}
	long := strings.TrimSuffix(strings.Repeat("name!=b,", 5000), ",")
	if s, err := ServedFields(ctx, long); err != nil || len(s.Requirements()) != 5000 || b.free > 1<<20-500_000 {
		t.Errorf("a long selector: %v, %d bytes free", err, b.free)
	}
	if _, err := ServedLabels(ctx, long); !errors.Is(err, ErrSelectorMemory) {
		t.Errorf("a second one: %v", err)
	}
	for _, text := range []string{strings.Repeat("a,", 10_000) + "a", strings.Repeat("a", 256<<10+1)} {
		if _, err := ServedLabels(ctx, text); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("beyond the limits: %v", err)
		}
		if _, err := LabelsOfAnnotation(text); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("beyond the limits, in an annotation: %v", err)
		}
	}
	if _, err := FieldsBeforeAuthorization(strings.Repeat("a!=b,", 1000) + "a=b"); err == nil {
		t.Error("a long selector is parsed before authorization")
	}
	if s, err := LabelsOfAnnotation("a=b,c=d"); err != nil || s["a"] != "b" || len(s) != 2 {
		t.Errorf("%v, %v", s, err)
	}
}
