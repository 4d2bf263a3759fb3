package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A job makes Cost calls of the partner's API.
type job struct {
	ID   string
	Cost int64
}

func newJobs(n int) []job {
	batch := strconv.FormatUint(rand.Uint64()>>32, 36)
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{ID: batch + "-" + strconv.Itoa(i), Cost: 1 + int64(i%5)}
	}
	return jobs
}

// A queue holds jobs in a sorted set of Redis. The score of a job is the time in milliseconds from which it can be
// taken. So a job that a killed process had taken can be taken again after hold, and no job is lost.
type queue struct {
	client *redis.Client
	key    string
	hold   time.Duration
}

var errEmpty = errors.New("no job can be taken now")

var takeOne = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local job = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
if job then
	redis.call('ZADD', KEYS[1], now + ARGV[1], job)
end
return job`)

// take returns a job, which nobody else gets before hold has passed, or errEmpty.
func (q *queue) take() (j job, err error) {
	text, err := takeOne.Run(context.Background(), q.client, []string{q.key}, q.hold.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return job{}, errEmpty
	}
	if err != nil {
		return job{}, err
	}
	return j, json.Unmarshal([]byte(text), &j)
}

// add puts new jobs into the queue.
func (q *queue) add(jobs ...job) error {
	if len(jobs) == 0 {
		return nil
	}
	members := make([]redis.Z, len(jobs))
	for i, j := range jobs {
		members[i] = redis.Z{Member: j.text()}
	}
	return q.client.ZAdd(context.Background(), q.key, members...).Err()
}

// putBack makes a job that was taken one that can be taken.
func (q *queue) putBack(j job) error {
	return q.client.ZAddXX(context.Background(), q.key, redis.Z{Member: j.text()}).Err()
}

// done removes a job.
func (q *queue) done(j job) error {
	return q.client.ZRem(context.Background(), q.key, j.text()).Err()
}

// left returns how many jobs are not done.
func (q *queue) left() (int64, error) {
	return q.client.ZCard(context.Background(), q.key).Result()
}

func (j job) text() []byte {
	text, err := json.Marshal(j)
	if err != nil {
		panic(err) // a string and a number have a text
	}
	return text
}
