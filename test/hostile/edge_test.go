package hostile

import "net/http"

// edgeAttacks are on connections, authentication, authorization and metrics.
func edgeAttacks() []row {
	return []row{
		{
			name: "impersonation without the right to it",
			row:  "11",
			run: func(a *attack) {
				a.user.get("/api/v1/namespaces", "Impersonate-User", "someone").want(a, http.StatusForbidden)
				a.user.get("/api/v1/namespaces", "Impersonate-User", "a", "Impersonate-Group", "system:masters").want(a, http.StatusForbidden)
			},
		},
	}
}
