package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The values of the Secret in the journey, and their base64.
const (
	firstValue, firstData   = "open-sesame", "b3Blbi1zZXNhbWU="
	secondValue, secondData = "rosebud-1941", "cm9zZWJ1ZC0xOTQx"
)

// keeps fails the test if the page has one of the values of the Secret anywhere: as text, in an attribute or in the editor.
func (p *page) keeps(where string) {
	p.t.Helper()
	found := p.says(fmt.Sprintf(`JSON.stringify(%s.filter((value) => [document.documentElement, ...document.querySelectorAll('*')]
		.some((e) => (e.shadowRoot?.innerHTML ?? (e === document.documentElement ? e.outerHTML : '')).includes(value))
			|| window.copied?.some((text) => text.includes(value))))`,
		fmt.Sprintf("[%q, %q, %q, %q]", firstValue, firstData, secondValue, secondData)))
	if found != "[]" {
		p.t.Errorf("%s: the page has %s", where, found)
	}
}

// secretEverywhere looks at a Secret in every view: its values, and the copy of them that kubectl has left in an annotation, are
// hidden until they are asked for, also on the clipboard, and an edit of something else keeps them.
func secretEverywhere(t *testing.T, s *server, p *page) {
	core := s.namespace(t, "secret-everywhere")
	applied := func(data string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}},"data":{"password":%q,"user":"YWRh"}}`,
			`{"apiVersion":"v1","kind":"Secret","data":{"password":"`+data+`"}}`, data)
	}
	s.create(t, core+"/secrets", "apiVersion: v1\nkind: Secret\nmetadata: {name: login, labels: {app: web}}\n")
	s.patch(t, core+"/secrets/login", "kubectl-client-side-apply", applied(firstData))
	s.patch(t, core+"/secrets/login", "kubectl-client-side-apply", applied(secondData))
	in(s, p)
	p.until("what is copied can be read", `(() => {
		window.copied = [];
		Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => void window.copied.push(text) } });
		return true;
	})()`)
	p.open("#/o/secrets/secret-everywhere/login")
	p.sees("last-applied-configuration=***", "show (12 bytes)")
	p.keeps("the overview")

	p.open("#/o/secrets/secret-everywhere/login/history")
	p.sees(".data.password")
	for _, n := range []int{0, 1} {
		p.clickOn("a version", fmt.Sprintf(`document.querySelectorAll('.versions input')[%d]`, n))
	}
	p.sees("-  password: '*** (before)'", "+  password: '*** (after)'", "   user: '***'")
	p.keeps("a comparison")
	p.clickOn("revert", `[...document.querySelectorAll('.versions button')].find((b) => b.innerText === 'Revert to this')`)
	p.sees("Revert login to version", "+  password: '*** (after)'")
	p.keeps("a revert")
	p.click("Close")
	p.click("Who set each field")
	p.shows("password: '***'")
	p.keeps("who set each field")

	p.open("#/o/secrets/secret-everywhere/login/yaml")
	p.shows("password: '***'")
	p.click("Copy")
	p.until("it is copied", `window.copied.length === 1`)
	p.keeps("the YAML")
	p.click("Edit")
	p.edits(strings.Replace(p.yaml(), "app: web", "app: shop", 1))
	p.click("Review the change")
	p.sees("+    app: shop", "accepted it as a dry run")
	p.keeps("the review of an edit")
	p.shot("secret-edit")
	p.click("Save")
	s.stores(t, core+"/secrets/login", "shop", "metadata", "labels", "app")
	s.stores(t, core+"/secrets/login", secondData, "data", "password")
	if text := s.call(t, http.MethodGet, core+"/secrets/login", "", ""); strings.Contains(text, "***") {
		t.Errorf("the hidden form was stored: %s", text)
	}

	p.sees("Edit")
	p.click("Edit")
	p.edits(strings.Replace(p.yaml(), "  password:", "  renamed:", 1))
	p.click("Review the change")
	p.sees("the value of renamed is hidden, and cannot be moved")
	p.click("Back to the editor")
	p.edits(strings.Replace(p.yaml(), "  renamed: '***'", "  password: "+firstData, 1))
	p.click("Review the change")
	p.sees("-  password: '*** (before)'")
	p.click("Back to the editor")
	p.click("Cancel")

	s.patch(t, core+"/secrets/login", "other", `{"data":{"user":"Ym9i"}}`)
	p.shows("password: '***'")
	p.click("Edit")
	p.edits(strings.Replace(p.yaml(), "app: shop", "app: cart", 1))
	s.patch(t, core+"/secrets/login", "other", applied(firstData))
	p.sees("It has changed meanwhile")
	p.click("Review the change")
	p.sees("409 Conflict", "+  password: '*** (after)'")
	p.keeps("a conflict")
	p.click("Back to the editor")
	p.click("Show the values")
	p.shows("password: " + secondData)
	if text := p.yaml(); !strings.Contains(text, "app: cart") {
		t.Errorf("the change is lost when the values are shown: %s", text)
	}
	p.click("Cancel")
	p.open("#/o/secrets/secret-everywhere/login")
	p.click("show (11 bytes)")
	p.sees(firstValue)
}
