package redisstore

// Slot is slot.
var Slot = slot
