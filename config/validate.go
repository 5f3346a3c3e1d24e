package config

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const lastPort = 65535

// mistakes collects errors.
type mistakes []error

// add adds an error whose message has the names of fields in braces.
func (m *mistakes) add(format string, args ...any) *Error {
	e := Errorf(format, args...)
	*m = append(*m, e)
	return e
}

// Validate returns the errors that can be found in the values of a complete configuration alone. It reads no
// files. keelson.Start calls it, and also checks values that only parts of the server know, such as the names of
// plug-ins.
func (c *Config) Validate() error {
	var m mistakes
	c.Storage.validate(&m)
	c.Serving.validate(&m)
	c.Authentication.validate(&m)
	c.Authorization.validate(&m)
	if c.Admission.WebhookBudget < 0 {
		m.add("{Admission.WebhookBudget} must not be negative")
	}
	c.Audit.validate(&m)
	c.Network.validate(&m)
	c.Requests.validate(&m)
	if c.Serving.Shutdown.Delay < 0 || c.Requests.MinWatchTimeout < 0 || c.Requests.MaxInFlight < 0 || c.Requests.MaxMutatingInFlight < 0 {
		m.add("{Requests.MinWatchTimeout}, {Requests.MaxInFlight}, {Requests.MaxMutatingInFlight} and " +
			"{Serving.Shutdown.Delay} must not be negative")
	}
	return errors.Join(m...)
}

func (s *Storage) validate(m *mistakes) {
	switch s.Backend {
	case StorageEmbedded, StorageMemory:
		if len(s.Etcd.Servers) > 0 {
			m.add("{Storage.Etcd.Servers} needs {Storage.Backend}=%s", StorageEtcd)
		}
	case StorageEtcd:
		s.Etcd.validate(m)
	case StorageMembers:
		if len(s.Etcd.Servers) > 0 || len(s.Etcd.Overrides) > 0 {
			m.add("{Storage.Etcd.Servers} and {Storage.Etcd.Overrides} need {Storage.Backend}=%s", StorageEtcd)
		}
	default:
		m.add("{Storage.Backend} must be %s, %s, %s or %s, not %q", StorageEmbedded, StorageMemory, StorageEtcd, StorageMembers, s.Backend)
	}
	if s.DataDir == "" && (s.Backend == StorageEmbedded || s.Backend == StorageMembers) {
		m.add("{Storage.DataDir} must not be empty")
	}
	s.Members.validate(m, s.Backend)
	if s.CacheMemory < 0 || s.CacheMemory > 0 && s.CacheMemory < 8<<20 {
		m.add("{Storage.CacheMemory} must be at least 8Mi")
	}
	if s.HistoryWindow <= 0 {
		m.add("{Storage.HistoryWindow} must be greater than 0")
	}
	if s.HistoryBytes < 0 || s.HistoryBytes > 0 && s.HistoryBytes < 1<<20 {
		m.add("{Storage.HistoryBytes} must be at least 1Mi")
	}
	if s.EncryptionReload && s.EncryptionConfigFile == "" {
		m.add("{Storage.EncryptionReload} must be set with {Storage.EncryptionConfigFile}")
	}
	if s.EventTTL < 0 {
		m.add("{Storage.EventTTL} must not be negative")
	}
	if s.LocalState != LocalStateOn && s.LocalState != LocalStateOff {
		m.add("{Storage.LocalState} must be %s or %s, not %q", LocalStateOn, LocalStateOff, s.LocalState)
	}
	if s.shared() && len(s.HistoryRetention) > 0 && !s.HasLocalState() {
		m.add("{Storage.HistoryRetention} needs {Storage.DataDir} and {Storage.LocalState}=%s if the data is in etcd", LocalStateOn)
	}
	s.validateSnapshots(m)
	s.validateBackup(m)
}

// HasLocalState reports whether a server whose data is shared keeps the data and its past in DataDir too.
func (s *Storage) HasLocalState() bool {
	return s.shared() && s.DataDir != "" && s.LocalState == LocalStateOn
}

// shared reports whether other servers write the same data.
func (s *Storage) shared() bool { return s.Backend == StorageEtcd || s.Backend == StorageMembers }

func (c *Members) validate(m *mistakes, backend string) {
	switch given := c.Init || c.Join != "" || c.Reset; {
	case backend == StorageMembers:
	case given || c.Name != "" || c.Address != "":
		m.add("{Storage.Members.Init}, {Storage.Members.Join}, {Storage.Members.Reset}, {Storage.Members.Name} and "+
			"{Storage.Members.Address} need {Storage.Backend}=%s", StorageMembers)
	}
	if c.Init && c.Join != "" || c.Init && c.Reset || c.Join != "" && c.Reset {
		m.add("only one of {Storage.Members.Init}, {Storage.Members.Join} and {Storage.Members.Reset} can be set")
	}
	if c.Token != "" && c.TokenFile != "" {
		m.add("only one of {Storage.Members.Token} and {Storage.Members.TokenFile} can be set")
	}
	if (c.Token != "" || c.TokenFile != "") && c.Join == "" {
		m.add("{Storage.Members.Token} and {Storage.Members.TokenFile} need {Storage.Members.Join}")
	}
	if c.Join != "" && c.Token == "" && c.TokenFile == "" {
		m.add("{Storage.Members.Join} needs {Storage.Members.Token} or {Storage.Members.TokenFile}; " +
			"`keelson members token create`, run at a member, prints a token")
	}
	if u, err := url.Parse(c.Join); c.Join != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/") {
		m.add("{Storage.Members.Join} must be like https://10.0.0.1:6443, not %q", c.Join)
	}
	if _, port, err := net.SplitHostPort(c.Address); c.Address != "" && (err != nil || !isPort(port)) {
		m.add("{Storage.Members.Address} must be like 10.0.0.1:2380, not %q", c.Address)
	}
	if strings.ContainsAny(c.Name, "=,/ ") {
		m.add("{Storage.Members.Name} must not contain spaces, commas, slashes or =, but is %q", c.Name)
	}
}

// isPort reports whether a text is the number of a port.
func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n > 0 && n < 1<<16
}

func (s *Storage) validateBackup(m *mistakes) {
	c := &s.Backup
	switch {
	case c.To == "":
		if c.Mode == BackupSync || c.Exclusive || c.RecipientsFile != "" || c.Keys || c.S3 != (S3{}) {
			m.add("{Storage.Backup.Mode}=%s, {Storage.Backup.Exclusive}, {Storage.Backup.RecipientsFile}, {Storage.Backup.Keys} and "+
				"--backup-s3-* need {Storage.Backup.To}", BackupSync)
		}
	case s.shared() && c.Mode == BackupSync:
		m.add("{Storage.Backup.Mode}=%s is not for data that other servers write too", BackupSync)
	case s.shared() && !s.HasLocalState():
		m.add("{Storage.Backup.To} needs {Storage.DataDir} and {Storage.LocalState}=%s if the data is in etcd, for what is copied of it",
			LocalStateOn)
	case c.Keys && c.RecipientsFile == "":
		m.add("{Storage.Backup.Keys} needs {Storage.Backup.RecipientsFile}: keys are copied only if the copy is encrypted")
	case c.Exclusive && s.Backend != StorageEmbedded:
		m.add("{Storage.Backup.Exclusive} needs {Storage.Backend}=%s", StorageEmbedded)
	case c.Keys && s.DataDir == "":
		m.add("{Storage.Backup.Keys} needs {Storage.DataDir}, which has the keys")
	}
	if c.Mode != BackupAsync && c.Mode != BackupSync {
		m.add("{Storage.Backup.Mode} must be %s or %s, not %q", BackupAsync, BackupSync, c.Mode)
	}
	if c.Interval < 100*time.Millisecond || c.Interval > time.Hour {
		m.add("{Storage.Backup.Interval} must be from 100ms to 1h")
	}
	if c.LockDuration < 2*time.Second || c.LockDuration > 10*time.Minute {
		m.add("{Storage.Backup.LockDuration} must be from 2s to 10m")
	}
	if c.Retention < time.Minute {
		m.add("{Storage.Backup.Retention} must be at least 1m")
	}
}

func (s *Storage) validateSnapshots(m *mistakes) {
	c := &s.Snapshots
	if c.Keep < 1 {
		m.add("{Storage.Snapshots.Keep} must be at least 1")
	}
	switch {
	case c.Interval == 0:
		if c.Dir != "" || len(c.Recipients) > 0 {
			m.add("{Storage.Snapshots.Dir} and {Storage.Snapshots.Recipients} need {Storage.Snapshots.Interval}")
		}
		if c.History {
			m.add("{Storage.Snapshots.History} needs {Storage.Snapshots.Interval}")
		}
	case s.Backend == StorageEtcd:
		m.add("{Storage.Snapshots.Interval} is not for data in etcd: save it with `etcdctl snapshot save`")
	case s.Backend == StorageMembers:
		m.add("{Storage.Snapshots.Interval} is not for members of a cluster: keep a copy of it with {Storage.Backup.To}")
	case c.Interval < time.Minute:
		m.add("{Storage.Snapshots.Interval} must be at least 1m")
	case c.Dir == "" && s.DataDir == "":
		m.add("{Storage.Snapshots.Dir} must not be empty")
	}
}

func (e *Etcd) validate(m *mistakes) {
	if len(e.Servers) == 0 {
		m.add("{Storage.Etcd.Servers} must be specified")
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		m.add("{Storage.Etcd.CertFile} and {Storage.Etcd.KeyFile} must be given together")
	}
	if strings.Trim(e.Prefix, "/") == "" {
		m.add("{Storage.Etcd.Prefix} must not be empty")
	}
	if e.CompactionInterval < 0 || e.DBMetricPollInterval < 0 || e.LeaseReuse < 0 {
		m.add("{Storage.Etcd.CompactionInterval}, {Storage.Etcd.DBMetricPollInterval} and {Storage.Etcd.LeaseReuse} must not " +
			"be negative")
	}
}

func (s *Serving) validate(m *mistakes) {
	if net.ParseIP(s.Address) == nil {
		m.add("{Serving.Address} must be an IP address, not %q", s.Address)
	}
	if s.Port < 0 || s.Port > lastPort {
		m.add("{Serving.Port} must be between 0 and 65535, not %d", s.Port)
	}
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		m.add("{Serving.TLS.CertFile} and {Serving.TLS.KeyFile} must be given together")
	}
	if s.HTTP2MaxStreams < 0 {
		m.add("{Serving.HTTP2MaxStreams} must not be negative")
	}
	if s.LivezGracePeriod < 0 {
		m.add("{Serving.LivezGracePeriod} can not be a negative value")
	}
	if s.Shutdown.WatchGrace < 0 {
		m.add("{Serving.Shutdown.WatchGrace} must not be negative").
			OnCommandLine("shutdown-watch-termination-grace-period, if provided, can not be a negative value")
	}
}

func (a *Authentication) validate(m *mistakes) {
	a.ServiceAccounts.validate(m)
	a.RequestHeader.validate(m)
	switch o := &a.OIDC; {
	case o.IsDefault():
	case a.ConfigFile != "":
		m.add("{Authentication.ConfigFile} and Authentication.OIDC are mutually exclusive").
			OnCommandLine("authentication-config file and oidc-* flags are mutually exclusive")
	case o.IssuerURL == "" || o.ClientID == "":
		m.add("{Authentication.OIDC.IssuerURL} and {Authentication.OIDC.ClientID} must be given together, and with all other " +
			"fields of Authentication.OIDC").
			OnCommandLine("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	if a.NoOwnCredentials {
		a.ServiceAccounts.validateKeys(m)
	}
}

// IsDefault reports whether all fields have the zero value or their default.
func (o *OIDC) IsDefault() bool {
	return o.IssuerURL == "" && o.ClientID == "" && o.CAFile == "" && (o.UsernameClaim == "" || o.UsernameClaim == defaultUsernameClaim) &&
		o.UsernamePrefix == "" && o.GroupsClaim == "" && o.GroupsPrefix == "" && len(o.RequiredClaims) == 0 &&
		(len(o.SigningAlgorithms) == 0 || slices.Equal(o.SigningAlgorithms, []string{defaultSigningAlgorithm}))
}

func (s *ServiceAccounts) validate(m *mistakes) {
	const issuers = "{Authentication.ServiceAccounts.Issuers}"
	if len(s.Issuers) == 0 {
		m.add(issuers + " must not be empty").OnCommandLine("service-account-issuer is a required flag")
	}
	for i, issuer := range s.Issuers {
		_, err := url.Parse(issuer)
		switch {
		case strings.Contains(issuer, ":") && err != nil:
			m.add(issuers+": %q contains a ':' but is not a valid URL: %w", issuer, err).
				OnCommandLine("service-account-issuer %q contained a ':' but was not a valid URL: %v", issuer, err)
		case issuer == "":
			m.add(issuers + " must not have an empty string").
				OnCommandLine("service-account-issuer should not be an empty string")
		case slices.Contains(s.Issuers[:i], issuer):
			m.add(issuers+" has %q twice", issuer).OnCommandLine("service-account-issuer %q is already specified", issuer)
		}
	}
	const jwks = "{Authentication.ServiceAccounts.JWKSURI}"
	if s.JWKSURI != "" {
		if u, err := url.Parse(s.JWKSURI); err != nil {
			m.add(jwks+" must be a valid URL: %w", err).OnCommandLine("service-account-jwks-uri must be a valid URL: %v", err)
		} else if u.Scheme != "https" {
			m.add(jwks+" must be an https URL, not %v", u).
				OnCommandLine("service-account-jwks-uri requires https scheme, parsed as: %v", u)
		}
	}
	if s.SigningEndpoint != "" {
		s.validateEndpoint(m)
	}
	const shortest, longest = time.Hour, 1 << 32 * time.Second
	if s.MaxExpiration != 0 && (s.MaxExpiration < shortest || s.MaxExpiration > longest) {
		m.add("{Authentication.ServiceAccounts.MaxExpiration} must be between 1 hour and 2^32 seconds").
			OnCommandLine("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
}

// validateKeys adds errors if the keys of tokens are not configured, for a server with NoOwnCredentials.
func (s *ServiceAccounts) validateKeys(m *mistakes) {
	if s.SigningEndpoint != "" {
		return
	}
	if len(s.KeyFiles) == 0 {
		m.add("{Authentication.ServiceAccounts.KeyFiles} or {Authentication.ServiceAccounts.SigningEndpoint} must be given").
			OnCommandLine("either `--service-account-key-file` or `--service-account-signing-endpoint` must be set")
	}
	if s.SigningKeyFile == "" {
		m.add("{Authentication.ServiceAccounts.SigningKeyFile} and {Authentication.ServiceAccounts.Issuers} must be given").
			OnCommandLine("--service-account-signing-key-file and --service-account-issuer are required flags")
	}
}

// abstractSocket matches the names of abstract sockets.
var abstractSocket = regexp.MustCompile(`^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$`)

func (s *ServiceAccounts) validateEndpoint(m *mistakes) {
	if s.SigningKeyFile != "" || len(s.KeyFiles) > 0 {
		m.add("{Authentication.ServiceAccounts.SigningEndpoint} excludes {Authentication.ServiceAccounts.SigningKeyFile} and " +
			"{Authentication.ServiceAccounts.KeyFiles}").
			OnCommandLine("can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
				"`--service-account-signing-endpoint` (They are mutually exclusive)")
	}
	if strings.HasPrefix(s.SigningEndpoint, "@") && !abstractSocket.MatchString(s.SigningEndpoint) {
		m.add("{Authentication.ServiceAccounts.SigningEndpoint} begins with @, but %q is no name of an abstract socket",
			s.SigningEndpoint).
			OnCommandLine("invalid value %q passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid "+
				"abstract socket name", s.SigningEndpoint)
	}
}

func (h *RequestHeader) validate(m *mistakes) {
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"UsernameHeaders", h.UsernameHeaders}, {"UIDHeaders", h.UIDHeaders}, {"GroupHeaders", h.GroupHeaders},
		{"ExtraHeaderPrefixes", h.ExtraHeaderPrefixes}, {"AllowedNames", h.AllowedNames},
	} {
		if slices.ContainsFunc(f.values, func(value string) bool { return strings.TrimSpace(value) == "" }) {
			path := "Authentication.RequestHeader." + f.name
			m.add("{%s} must not have an empty string", path).OnCommandLine("empty value in %q", Flag(path))
		}
	}
}

func (a *Authorization) validate(m *mistakes) {
	if a.ConfigFile != "" {
		return // the other fields are not used
	}
	if len(a.Modes) == 0 {
		m.add("{Authorization.Modes} must not be empty").OnCommandLine("at least one authorization-mode must be passed")
	}
	all := []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeABAC, ModeWebhook, ModeRBAC, ModeNode}
	for i, mode := range a.Modes {
		if !slices.Contains(all, mode) {
			m.add("{Authorization.Modes}: %q is not a valid mode", mode).
				OnCommandLine("authorization-mode %q is not a valid mode", mode)
		}
		if slices.Contains(a.Modes[:i], mode) {
			m.add("{Authorization.Modes} has a mode twice: %q", a.Modes).
				OnCommandLine("authorization-mode %q has mode specified more than once", a.Modes)
		}
	}
	has := func(mode string) bool { return slices.Contains(a.Modes, mode) }
	switch {
	case has(ModeABAC) && a.PolicyFile == "":
		m.add("mode ABAC needs {Authorization.PolicyFile}").
			OnCommandLine("authorization-mode ABAC's authorization policy file not passed")
	case !has(ModeABAC) && a.PolicyFile != "":
		m.add("cannot specify {Authorization.PolicyFile} without mode ABAC")
	}
	switch {
	case has(ModeWebhook) && a.Webhook.ConfigFile == "":
		m.add("mode Webhook needs {Authorization.Webhook.ConfigFile}").
			OnCommandLine("authorization-mode Webhook's authorization config file not passed")
	case !has(ModeWebhook) && a.Webhook.ConfigFile != "":
		m.add("cannot specify {Authorization.Webhook.ConfigFile} without mode Webhook")
	}
}

func (a *Audit) validate(m *mistakes) {
	if a.Log.Path != "" {
		a.Log.AuditSink.validate(m, "Audit.Log", "log", a.Log.Throttle)
		if formats := []string{AuditFormatLegacy, AuditFormatJSON}; !slices.Contains(formats, a.Log.Format) {
			m.add("{Audit.Log.Format} must be one of %q, not %q", formats, a.Log.Format).OnCommandLine(
				"invalid audit log format %s, allowed formats are %q", a.Log.Format, strings.Join(formats, ","))
		}
		for _, n := range []struct {
			name  string
			value int
		}{{"MaxAge", a.Log.MaxAge}, {"MaxBackups", a.Log.MaxBackups}, {"MaxSize", a.Log.MaxSize}} {
			if n.value < 0 {
				m.add("{Audit.Log.%s} %v can't be a negative number", n.name, n.value)
			}
		}
	}
	if a.Webhook.ConfigFile != "" {
		a.Webhook.AuditSink.validate(m, "Audit.Webhook", "webhook", !a.Webhook.NoThrottle)
	}
}

// validate checks the group at path. name is what kube-apiserver calls the sink in its messages.
func (s *AuditSink) validate(m *mistakes, path, name string, throttle bool) {
	modes := []string{AuditBatch, AuditBlocking, AuditBlockingStrict}
	positive := func(field, what string, value any) {
		m.add("{%s.%s} must be a positive number, not %v", path, field, value).
			OnCommandLine("invalid audit batch %s %s %v, must be a positive number", name, what, value)
	}
	switch {
	case !slices.Contains(modes, s.Mode):
		m.add("{%s.Mode} must be one of %q, not %q", path, modes, s.Mode).
			OnCommandLine("invalid audit %s mode %s, allowed modes are %q", name, s.Mode, strings.Join(modes, ","))
	case s.Mode != AuditBatch: // the fields below are not used
	case s.BufferSize <= 0:
		positive("BufferSize", "buffer size", s.BufferSize)
	case s.BatchSize <= 0:
		positive("BatchSize", "max batch size", s.BatchSize)
	case throttle && s.QPS <= 0:
		positive("QPS", "throttle QPS", s.QPS)
	case throttle && s.Burst <= 0:
		positive("Burst", "throttle burst", s.Burst)
	}
	if s.MaxEventSize <= 0 {
		m.add("{%s.MaxEventSize} must be a positive number, not %v", path, s.MaxEventSize).
			OnCommandLine("invalid audit truncate %s max event size %v, must be a positive number", name, s.MaxEventSize)
	} else if s.MaxBatchSize < s.MaxEventSize {
		m.add("{%s.MaxBatchSize} must not be less than {%[1]s.MaxEventSize} (%d)", path, s.MaxEventSize).
			OnCommandLine("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)",
				name, s.MaxBatchSize, s.MaxEventSize)
	}
	switch {
	case strings.Count(s.Version, "/") > 1:
		m.add("{%s.Version} must be %s, not %q", path, auditVersion, s.Version).
			OnCommandLine("unexpected GroupVersion string: %s", s.Version)
	case s.Version != auditVersion:
		m.add("{%s.Version} must be %s, not %q", path, auditVersion, s.Version).
			OnCommandLine("invalid group version, allowed versions are %q", []string{auditVersion})
	}
}

// notAdvertised returns why an address cannot be an endpoint of the Service kubernetes, "" if it can.
func notAdvertised(ip net.IP) string {
	switch {
	case ip.IsLoopback():
		return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case ip.IsLinkLocalUnicast():
		return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case ip.IsLinkLocalMulticast():
		return "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	}
	return ""
}

func (n *Network) validate(m *mistakes) {
	if _, err := n.ServiceRanges(); err != nil {
		m.add("{Network.ServiceClusterIPRange}: %w", err)
	}
	p := &n.ControlPlane
	if p.AdvertiseAddress != "" && net.ParseIP(p.AdvertiseAddress) == nil {
		m.add("{Network.ControlPlane.AdvertiseAddress} must be an IP address, not %q", p.AdvertiseAddress)
	} else if why := notAdvertised(net.ParseIP(p.AdvertiseAddress)); why != "" && p.EndpointReconciler != ReconcilerNone {
		m.add("{Network.ControlPlane.AdvertiseAddress}: %s %s", p.AdvertiseAddress, why).
			OnCommandLine("cannot use public IP %s with endpoint reconciler: <nil>: Invalid value: %q: %s",
				p.AdvertiseAddress, p.AdvertiseAddress, why)
	}
	switch p.EndpointReconciler {
	case ReconcilerLease, ReconcilerMasterCount, ReconcilerNone:
	default:
		m.add("{Network.ControlPlane.EndpointReconciler} must be one of: [%s, %s, %s]",
			ReconcilerMasterCount, ReconcilerLease, ReconcilerNone)
	}
	if p.ServiceNodePort < 0 || p.ServiceNodePort > lastPort {
		m.add("{Network.ControlPlane.ServiceNodePort} %v must be between 0 and 65535, inclusive. If 0, the Kubernetes master "+
			"service will be of type ClusterIP", p.ServiceNodePort)
	}
	c := &n.Connections
	if (c.KubeletCertFile == "") != (c.KubeletKeyFile == "") {
		m.add("{Network.Connections.KubeletCertFile} and {Network.Connections.KubeletKeyFile} must be given together")
	}
	if c.MaxBytesPerSecond < 0 {
		m.add("{Network.Connections.MaxBytesPerSecond} must not be negative")
	}
	if c.KubeletPort < 1 || c.KubeletPort > lastPort {
		m.add("{Network.Connections.KubeletPort} must be between 1 and 65535, not %d", c.KubeletPort)
	}
	if (n.Aggregation.ProxyClientCertFile == "") != (n.Aggregation.ProxyClientKeyFile == "") {
		m.add("{Network.Aggregation.ProxyClientCertFile} and {Network.Aggregation.ProxyClientKeyFile} must be given together")
	}
}

func (r *Requests) validate(m *mistakes) {
	if r.DeleteCollectionWorkers < 1 {
		m.add("{Requests.DeleteCollectionWorkers} must be at least 1")
	}
	if r.Timeout <= 0 {
		m.add("{Requests.Timeout} must be greater than 0")
	}
	if !r.NoPriorityAndFairness && r.MaxInFlight+r.MaxMutatingInFlight <= 0 {
		m.add("{Requests.MaxInFlight} (%d) and {Requests.MaxMutatingInFlight} (%d) must add up to something positive",
			r.MaxInFlight, r.MaxMutatingInFlight).
			OnCommandLine("invalid configuration: MaxRequestsInFlight=%d and MaxMutatingRequestsInFlight=%d; they must add up to "+
				"something positive", r.MaxInFlight, r.MaxMutatingInFlight)
	}
}
