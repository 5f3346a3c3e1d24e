// Package serviceallocator assigns cluster IPs and node ports to Services, so that no two Services have the same.
// Each cluster IP in use has an IPAddress object, and one RangeAllocation object has a bit for each node port.
// Both are written in the transaction that writes the Service, and both have the encoding that kube-apiserver
// writes, because it may use the same store.
package serviceallocator
