package config

import "time"

// Values of Storage.Backend.
const (
	StorageEmbedded = "embedded"
	StorageMemory   = "memory"
	StorageEtcd     = "etcd"
	StorageMembers  = "members"
)

// The values of Backup.Mode.
const (
	BackupAsync = "async"
	BackupSync  = "sync"

	// LocalStateOn and LocalStateOff are values of Storage.LocalState.
	LocalStateOn  = "on"
	LocalStateOff = "off"
)

// Storage configures where objects are kept.
type Storage struct {
	// Backend is StorageEmbedded (in DataDir), StorageMemory (nothing is left when the server stops), StorageEtcd or StorageMembers. The
	// default is StorageMembers if Members.Init, Members.Join or Members.Reset is set, and else StorageEmbedded (--storage).
	Backend string `flag:"storage"`
	// DataDir has the data, the server's certificates and its kubeconfig. It is created if it is missing, and only
	// one process may use it. The default is ./keelson-data with StorageEmbedded and StorageMembers. With the other backends there is
	// no default: without DataDir, the server makes new certificates at each start and writes nothing to disk
	// (--data-dir).
	DataDir string `flag:"data-dir"`
	// Etcd configures the clusters of StorageEtcd.
	Etcd Etcd
	// Members configures the cluster of servers of StorageMembers.
	Members Members
	// LocalState, if the data is shared and there is a DataDir, keeps the data and its past there too (LocalStateOn), so that every
	// server can tell what was changed, when and by whom, however soon etcd forgets it. With LocalStateOff the server has no past, and
	// does not tell others who has made its changes. The default is LocalStateOn (--local-state).
	LocalState string `flag:"local-state"`
	// HistoryWindow is how long the embedded engine keeps old revisions. For that time a list can be continued and a
	// watch resumed. The default is 5 minutes (--history-window).
	HistoryWindow time.Duration `flag:"history-window"`
	// HistoryRetention is how long old versions of changed and deleted objects can be read after HistoryWindow,
	// for asOf and the history of objects: TIME for all resources, and RESOURCE[.GROUP][/NAMESPACE]=TIME for
	// exceptions, such as pods=1h and */kube-system=7d. The default is 24h, and none
	// without a directory for the data. Events and Leases have no history unless a rule names them (--history-retention).
	HistoryRetention []string `flag:"history-retention"`
	// HistoryBytes is the largest disk space for that history. Above it, the namespaces with the most history lose
	// versions first. The default is 1 GiB, or a tenth of the disk if that is less. The changes that Backup has not copied yet may take
	// the same space again (--history-max-bytes).
	HistoryBytes Bytes `flag:"history-max-bytes"`
	// EventTTL is how long an Event is kept after its last write, in whole seconds. The default is 1 hour; with None it is
	// not removed (--event-ttl).
	EventTTL time.Duration `flag:"event-ttl"`
	// CacheMemory limits the memory for objects, their encodings and the logs of their changes. Other objects are
	// read from the store when they are needed. The default is a quarter of the machine's memory, or a quarter of
	// the limit of the control group or of GOMEMLIMIT if that is less, but at least 32 MiB (--cache-memory).
	CacheMemory Bytes `flag:"cache-memory"`
	// Snapshots configures the snapshots that the server makes by itself.
	Snapshots Snapshots
	// Backup configures the copy of the data that the server keeps elsewhere.
	Backup Backup
	// EncryptionConfigFile is an EncryptionConfiguration for values in the store. Without it they are stored as they
	// are (--encryption-provider-config).
	EncryptionConfigFile string `flag:"encryption-provider-config"`
	// EncryptionReload follows changes of EncryptionConfigFile (--encryption-provider-config-automatic-reload).
	EncryptionReload bool `flag:"encryption-provider-config-automatic-reload"`
}

// Backup configures a copy of the data that a server keeps elsewhere, and that has each change soon after it was made. Out of it the data
// can be restored as it was at any moment of Retention.
type Backup struct {
	// To is where the copy is: a directory, such as one on another machine that is mounted here, or s3://BUCKET/PREFIX. Each server
	// needs a place of its own, but those on one etcd cluster name the same one: one of them writes. The default is none: there is no copy (--backup-to).
	To string `flag:"backup-to"`
	// Mode is BackupAsync or BackupSync. With BackupSync a change is answered, and visible, only when the copy has it: nothing that was
	// answered is lost with the machine, and every write waits for the place of the copy. While that cannot be reached, writes wait until
	// their time is up. BackupSync is not for StorageEtcd. The default is BackupAsync (--backup-mode).
	Mode string `flag:"backup-mode"`
	// Exclusive makes the server answer only while it holds the lock of the copy. A standby that follows the copy takes the lock when this
	// server is gone, and the two never both answer. The default is false (--backup-exclusive).
	Exclusive bool `flag:"backup-exclusive"`
	// Interval is the longest time between a change and its copy, if the place is fast enough: from 100 ms to 1 h. The default is 1
	// second (--backup-interval).
	Interval time.Duration `flag:"backup-interval"`
	// LockDuration is how long the lock of the copy is valid after it was renewed, if Exclusive is set: from 2 s to 10 min. A standby takes
	// over when it was not renewed for a tenth longer. The default is 10 seconds (--backup-lock-duration).
	LockDuration time.Duration `flag:"backup-lock-duration"`
	// Retention is how far back states can be restored, at least 1 minute. The default is 7 days (--backup-retention).
	Retention time.Duration `flag:"backup-retention"`
	// RecipientsFile has public keys of age, one on each line. If it is set, the copy is encrypted for them. The server has no key with
	// which it could read the copy later. It is read at the start (--backup-recipients-file).
	RecipientsFile string `flag:"backup-recipients-file"`
	// Keys also copies the keys and certificates of DataDir, and EncryptionConfigFile. It needs RecipientsFile. The default is false
	// (--backup-keys).
	Keys bool `flag:"backup-keys"`
	// S3 configures the service of s3://.
	S3 S3
}

// S3 configures an S3 service. Credentials come from the places where programs of AWS look for them: the environment
// (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), the shared file, or the machine.
type S3 struct {
	// Endpoint is the URL of the service. The default is that of AWS (--backup-s3-endpoint).
	Endpoint string `flag:"backup-s3-endpoint"`
	// Region is the region of the bucket. The default is the region that the environment names (AWS_REGION). If there is none and Endpoint
	// is set, it is us-east-1 (--backup-s3-region).
	Region string `flag:"backup-s3-region"`
	// VirtualHost puts the name of the bucket into the host name of requests to Endpoint, as some services demand. The default is false: the
	// name is in the path (--backup-s3-virtual-host).
	VirtualHost bool `flag:"backup-s3-virtual-host"`
	// CAFile has the authorities that may have signed the certificate of the service. The default are those of the system
	// (--backup-s3-cafile).
	CAFile string `flag:"backup-s3-cafile"`
}

// Snapshots configures the snapshots that a server makes of its own store, as backups. They are not for StorageEtcd.
type Snapshots struct {
	// Interval is the time between two snapshots, at least 1 minute. The default is 0: the server makes none
	// (--snapshot-schedule).
	Interval time.Duration `flag:"snapshot-schedule"`
	// Dir is the directory of the snapshots, which no other server may use. It is created if it is missing. The default is
	// the folder backups of DataDir (--snapshot-dir).
	Dir string `flag:"snapshot-dir"`
	// Keep is how many snapshots are kept: when one more is complete, the oldest is removed. The default is 14
	// (--snapshot-keep).
	Keep int `flag:"snapshot-keep"`
	// History adds the history that HistoryRetention keeps to the snapshots, which makes them larger. The default
	// is false (--snapshot-history).
	History bool `flag:"snapshot-history"`
	// Recipients are public keys of age. If there are any, snapshots are encrypted for them, and also contain the
	// keys and certificates of DataDir, and EncryptionConfigFile. The default is none (--snapshot-recipient).
	Recipients []string `flag:"snapshot-recipient"`
}

// Members configures a cluster of servers that keep the data together: each has all of it, and a change is answered when a majority has
// it on disk. The consensus is etcd's, in this process. A server that has been a member goes on as one, so Init and Join have no effect
// later.
type Members struct {
	// Init makes a new cluster with this server as its first member (--cluster-init).
	Init bool `flag:"cluster-init"`
	// Join is the URL of a server of the cluster that this server joins, such as https://10.0.0.1:6443 (--join).
	Join string `flag:"join"`
	// Token is the token for Join: keelson members token create, run at a member, prints one. It ends with a hash of the authority of the
	// cluster's certificates, so that it is given to no other server (--token).
	Token string `flag:"token"`
	// TokenFile has the token in place of Token, so that it is not in the list of processes (--token-file).
	TokenFile string `flag:"token-file"`
	// Name is the name of the member, which no other one has. A server with the name of a lost member takes its place. The default is the
	// name of the host, with the port of Address if that is not 2380 (--member-name).
	Name string `flag:"member-name"`
	// Address is the host or IP address and the port at which the other members reach this one. It listens on this port of
	// Serving.Address. The default is the advertised address and the port 2380 (--member-address).
	Address string `flag:"member-address"`
	// Reset makes this server the only member, with the data that it has, after a majority was lost for ever. What it has not received is
	// lost. Revisions go on above all that a client can have seen. The default is false (--cluster-reset).
	Reset bool `flag:"cluster-reset"`
}

// Bytes is a number of bytes.
type Bytes int64

// Etcd configures the etcd clusters that store the objects.
type Etcd struct {
	// Servers are the client URLs of the members of the cluster (--etcd-servers).
	Servers []string `flag:"etcd-servers"`
	// Overrides store resources in other clusters: group/resource#url;url (--etcd-servers-overrides).
	Overrides []string `flag:"etcd-servers-overrides"`
	// CAFile is a PEM file of the authorities of the certificates of all clusters. The default are those of the system
	// (--etcd-cafile).
	CAFile string `flag:"etcd-cafile"`
	// CertFile is a PEM file of the certificate that the server shows to all clusters (--etcd-certfile).
	CertFile string `flag:"etcd-certfile"`
	// KeyFile is a PEM file of the key of CertFile (--etcd-keyfile).
	KeyFile string `flag:"etcd-keyfile"`
	// Prefix is the prefix of all keys. The default is /registry (--etcd-prefix).
	Prefix string `flag:"etcd-prefix"`
	// CompactionInterval is the time between compactions. The default is 5 minutes; with None this server does not compact
	// (--etcd-compaction-interval).
	CompactionInterval time.Duration `flag:"etcd-compaction-interval"`
	// DBMetricPollInterval is the time between reads of the database size. The default is 30 seconds; with None it is read
	// once (--etcd-db-metric-poll-interval).
	DBMetricPollInterval time.Duration `flag:"etcd-db-metric-poll-interval"`
	// LeaseReuse limits how long a lease is used for further objects, in whole seconds. The default is 1 minute
	// (--lease-reuse-duration-seconds).
	LeaseReuse time.Duration `flag:"lease-reuse-duration-seconds"`
	// HealthcheckTimeout limits the time of the health check etcd, which exists for every backend. The default is
	// 2 seconds (--etcd-healthcheck-timeout).
	HealthcheckTimeout time.Duration `flag:"etcd-healthcheck-timeout"`
	// ReadycheckTimeout limits the time of the health check etcd-readiness, which exists for every backend. The
	// default is 2 seconds (--etcd-readycheck-timeout).
	ReadycheckTimeout time.Duration `flag:"etcd-readycheck-timeout"`
}
