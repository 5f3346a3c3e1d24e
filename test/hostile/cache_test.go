package hostile

import (
	"net/http"
	"strconv"
)

// cacheAttacks are on reads, watches, the store and its history.
func cacheAttacks() []row {
	return []row{
		{
			name: "resource version in the future",
			row:  "6",
			rights: []right{
				{resources: "configmaps", verbs: "get,list,watch"},
			},
			run: func(a *attack) {
				future := strconv.Itoa(1 << 40)
				got := a.user.get(a.path("configmaps?resourceVersion="+future)).want(a, http.StatusGatewayTimeout)
				if got.reason() != "Timeout" {
					a.Errorf("reason %q", got.reason())
				}
			},
		},
	}
}
