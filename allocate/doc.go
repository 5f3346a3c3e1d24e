// Package allocate gives Services what no two of them may have: cluster IPs, each
// claimed by an IPAddress object, and node ports, which are bits of one
// RangeAllocation. Both are written in the transaction that writes the Service, in the
// form that kube-apiserver uses, which may share the store.
package allocate
