package hostile

import (
	"net/http"
	"strings"
)

// bodyAttacks are on what decodes and stores request bodies.
func bodyAttacks() []row {
	return []row{
		{
			name:   "body over the limit",
			row:    "19",
			rights: []right{{resources: "configmaps", verbs: "create,update,patch,delete"}},
			run: func(a *attack) {
				body := []byte(`{"metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`)
				a.user.send(http.MethodPost, a.path("configmaps"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodPut, a.path("configmaps/a"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodPatch, a.path("configmaps/a"), mergeType, body).want(a, http.StatusRequestEntityTooLarge)
				a.user.send(http.MethodDelete, a.path("configmaps/a"), jsonType, body).want(a, http.StatusRequestEntityTooLarge)
			},
		},
	}
}
