package embedded

// recentVersions are the newest versions of the keys that were written or read last, so that the planner need not
// read these from the database. They include the versions of the group that is being planned, which the database
// does not have yet. They are never older than the database: only the planner writes versions, and it puts each
// one here. After a write has failed, the pipeline plans nothing more.
//
// The versions are in a queue, in the order in which they were put. Example with a limit for two of them:
//
//	put(a, 5), put(b, 6)   queue a5 b6
//	put(a, 7)              queue a5 b6 a7; a5 is not the newest any more
//	trim()                 queue b6 a7: a5 is removed from the queue
type recentVersions struct {
	newest map[string]version
	queue  []recentVersion // the array may have dropped elements before the slice
	bytes  int             // of all elements of the queue
	limit  int
}

// recentVersion is an element of the queue: the version of key at revision.
type recentVersion struct {
	key      string
	revision int64
	bytes    int
}

// newRecentVersions returns empty recentVersions with a limit in bytes.
func newRecentVersions(limit int) *recentVersions {
	return &recentVersions{newest: make(map[string]version), limit: limit}
}

// get returns the newest version of key, and false if it is not among the recent versions.
func (r *recentVersions) get(key string) (version, bool) {
	v, ok := r.newest[key]
	return v, ok
}

// put makes v the newest version of key. The value of v must not change afterwards. Nothing is dropped before trim.
func (r *recentVersions) put(key string, v version) {
	e := recentVersion{key, v.revision, eventOverhead + len(key) + len(v.value)}
	r.newest[key] = v
	r.queue = append(r.queue, e)
	r.bytes += e.bytes
}

// trim drops the oldest versions until the limit is met. The database must have all versions, and the planner must not
// be reading an older state of it.
func (r *recentVersions) trim() {
	for r.bytes > r.limit {
		e := r.queue[0]
		r.queue[0] = recentVersion{}
		r.queue = r.queue[1:]
		r.bytes -= e.bytes
		if r.newest[e.key].revision == e.revision {
			delete(r.newest, e.key)
		}
	}
}
