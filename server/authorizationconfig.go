package server

// Names of --authorization-mode.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeABAC        = "ABAC"
	ModeWebhook     = "Webhook"
	ModeRBAC        = "RBAC"
	ModeNode        = "Node"
)

// AuthorizationConfig says how requests are authorized.
type AuthorizationConfig struct {
	// Modes are asked in order until one decides.
	Modes []string
}

// DefaultAuthorization is that of a cluster: kubelets by the node authorizer,
// everybody by roles.
func DefaultAuthorization() AuthorizationConfig {
	return AuthorizationConfig{Modes: []string{ModeNode, ModeRBAC}}
}
