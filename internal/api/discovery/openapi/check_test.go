package openapi

import (
	"fmt"
	"strings"
	"testing"
)

// TestCheckV2 checks that invalid paths and definitions of an extension API server are dropped, and everything
// that refers to them.
func TestCheckV2(t *testing.T) {
	path := func(ref string) string {
		return `{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"` + ref + `"}}}}}`
	}
	deep := strings.Repeat(`{"properties":{"a":`, maxNesting) + "{}" + strings.Repeat("}}", maxNesting)
	large := `{"description":"` + strings.Repeat("x", maxMember) + `"}`
	const definition = "#/definitions/"
	text := `{"paths":{"/a/good":` + path(definition+"Good") + `,"/a/five":` + path(definition+"Five") +
		`,"/a/escaped":` + path(`#\/definitions\/Five`) + `,"/a/deep":` + path(definition+"Deep") +
		`,"/a/large":` + path(definition+"Large") + `,"/a/indirect":` + path(definition+"Indirect") +
		`,"/a/missing":` + path(definition+"Missing") + `,"/a/number":5,"/b/other":` + path(definition+"Other") +
		`},"definitions":{"Good":{"properties":{"n":{"$ref":"#/definitions/Nested"}}},"Nested":{"type":"object"},` +
		`"Five":5,"Deep":` + deep + `,"Large":` + large + `,"Other":{"type":"object"},"Odd":{"properties":5},` +
		`"Indirect":{"properties":{"n":{"$ref":"#/definitions/Five"}}}}}`
	part, dropped, err := CheckV2([]byte(text), func(path string) bool { return strings.HasPrefix(path, "/a/") })
	if err != nil {
		t.Fatal(err)
	}
	want := `{"paths":{"/a/good":` + path(definition+"Good") + `},"definitions":{"Good":{"properties":{"n":{"$ref":` +
		`"#/definitions/Nested"}}},"Nested":{"type":"object"}}}`
	if string(part) != want {
		t.Errorf("%.2000s\nwant %s", part, want)
	}
	const invalid = 5 // /a/number, Five, Deep, Large, Odd
	if len(dropped) != invalid {
		t.Errorf("dropped: %.500v", fmt.Sprint(dropped))
	}
	for _, bad := range []string{"", "5", "[]", `{"paths":5}`} {
		if _, _, err := CheckV2([]byte(bad), func(string) bool { return true }); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}
