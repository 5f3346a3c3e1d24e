package negotiate

import (
	"net/http/httptest"
	"testing"
)

func TestTablesNeedColumns(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if _, err := (Formats{}).Response(r, Endpoint{Transforms: true, NoTable: true}); err == nil {
		t.Error("a Table is promised")
	}
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if a, err := (Formats{}).Response(r, Endpoint{Transforms: true, NoTable: true}); err != nil || a.As != Plain {
		t.Errorf("%+v %v", a, err)
	}
}
