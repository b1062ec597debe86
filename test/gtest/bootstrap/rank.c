// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job that somebody launched: rank SCENARIO DIRECTORY. Ends with status 0 when what
// it saw is what the scenario promises. In C, as its header can be used from there.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tagwire_bootstrap.h>
#include <unistd.h>

enum { kOddRank = 2, kShortMs = 1500, kPatienceS = 100 };

static uint32_t rank_of_me, size_of_job;

// The handler writes it when this rank has had kPatienceS.
static const char* volatile doing = "joining its job";

static void write_text(const char* text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(4);
}

static void on_alarm(int signal) {
    (void)signal;
    write_text("a rank hung while it was ");
    write_text(doing);
    write_text("\n");
    _exit(3);
}

static int complain(const char* what) {
    fprintf(stderr, "rank %u: %s; last error: %s\n", rank_of_me, what, tw_bootstrap_last_error());
    return 1;
}

static int gather(tw_bootstrap_h job, size_t bytes) {
    unsigned char* mine = malloc(bytes + 1);
    unsigned char* all = malloc(bytes * size_of_job + 1);
    memset(mine, (int)rank_of_me + 1, bytes);
    int wrong = tw_bootstrap_allgather(job, mine, bytes, all) != TW_OK;
    for (uint32_t rank = 0; rank < size_of_job; ++rank)
        for (size_t i = 0; i < bytes; ++i)
            wrong |= all[rank * bytes + i] != rank + 1;
    free(mine);
    free(all);
    return wrong;
}

static int scenario_gather(tw_bootstrap_h job) {
    static const size_t sizes[] = {8, 0, 1, 1000, 65536, TW_BOOTSTRAP_BYTES_MAX, 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        if (gather(job, sizes[i]))
            return complain("allgather is wrong");
        if (tw_bootstrap_barrier(job) != TW_OK)
            return complain("barrier failed");
    }
    tw_bootstrap_h second;
    if (tw_bootstrap_create(NULL, &second) != TW_OK || gather(second, 16) || gather(job, 16))
        return complain("a second handle is wrong");
    tw_bootstrap_destroy(second);
    printf("%s %u of %u is well\n", tw_bootstrap_method_name(job), rank_of_me, size_of_job);
    return 0;
}

static int failed_well(tw_status_t status, tw_status_t wanted, const char* word) {
    return status == wanted && strstr(tw_bootstrap_last_error(), word) != NULL;
}

static int scenario_lengths(tw_bootstrap_h job) {
    unsigned char mine[16] = {0}, all[16 * 64];
    const size_t bytes = rank_of_me == kOddRank ? 16 : 8;
    const tw_status_t status = tw_bootstrap_allgather(job, mine, bytes, all);
    return failed_well(status, TW_ERR_INVALID_PARAM, "rank 2 calls allgather of 16 bytes")
               ? 0
               : complain("different lengths are not refused");
}

// The odd rank comes, but calls nothing until the others have given up.
static int scenario_absent(tw_bootstrap_h job, const char* directory) {
    tw_bootstrap_params_t params = {0};
    params.struct_bytes = sizeof params;
    params.method = TW_BOOTSTRAP_DIR;
    params.where = directory;
    params.rank = rank_of_me;
    params.size = size_of_job;
    tw_bootstrap_h other;
    if (tw_bootstrap_create(&params, &other) != TW_OK)
        return complain("no second way to meet");
    int failed = 0;
    if (rank_of_me != kOddRank &&
        !failed_well(tw_bootstrap_barrier(job), TW_ERR_TIMED_OUT, "rank 2 of"))
        failed = complain("the absent rank is not named");
    if (tw_bootstrap_barrier(other) != TW_OK)
        failed = complain("the second way failed");
    tw_bootstrap_destroy(other);
    return failed;
}

static int scenario_leave(tw_bootstrap_h job) {
    if (rank_of_me == kOddRank)
        return 0;
    const tw_status_t status = tw_bootstrap_barrier(job);
    return status != TW_OK && strstr(tw_bootstrap_last_error(), "rank 2") != NULL
               ? 0
               : complain("the rank that left is not named");
}

static int run(tw_bootstrap_h job, const char* scenario, const char* directory) {
    if (strcmp(scenario, "lengths") == 0)
        return scenario_lengths(job);
    if (strcmp(scenario, "absent") == 0)
        return scenario_absent(job, directory);
    if (strcmp(scenario, "leave") == 0)
        return scenario_leave(job);
    return complain("no such scenario");
}

// A handle whose calls soon come to the end of their time, once all ranks are there.
static int run_in_short_time(tw_bootstrap_h job, const char* scenario, const char* directory) {
    tw_bootstrap_params_t params = {0};
    params.struct_bytes = sizeof params;
    params.timeout_ms = kShortMs;
    tw_bootstrap_h brief;
    if (tw_bootstrap_create(&params, &brief) != TW_OK || tw_bootstrap_barrier(job) != TW_OK)
        return complain("the ranks do not come together");
    const int failed = run(brief, scenario, directory);
    tw_bootstrap_destroy(brief);
    return failed;
}

// Complaints of this rank go past the launcher, which may hang.
static int redirect_complaints(const char* directory) {
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/words", directory);
    return length > 0 && (size_t)length < sizeof path && freopen(path, "a", stderr) != NULL;
}

// A file that says that this rank found all as it should be: the launcher's exit status says less.
static int note_success(const char* directory) {
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/well.%u", directory, rank_of_me);
    if (length < 0 || (size_t)length >= sizeof path)
        return complain("the directory's name is too long");
    FILE* file = fopen(path, "w");
    return file != NULL && fclose(file) == 0 ? 0 : complain("no file can be written");
}

int main(int argc, char** argv) {
    if (argc != 3 || !redirect_complaints(argv[2]))
        return 2;
    // More than a call of this job may take. Nobody else ends a rank whose launcher was killed.
    signal(SIGALRM, on_alarm);
    alarm(kPatienceS);
    tw_bootstrap_h job;
    const tw_status_t status = tw_bootstrap_create(NULL, &job);
    if (status != TW_OK) {
        fprintf(stderr, "%s: %s\n", tw_status_string(status), tw_bootstrap_last_error());
        return 1;
    }
    rank_of_me = tw_bootstrap_rank(job);
    size_of_job = tw_bootstrap_size(job);
    doing = "running its scenario";
    const int failed = strcmp(argv[1], "gather") == 0 ? scenario_gather(job)
                                                      : run_in_short_time(job, argv[1], argv[2]);
    doing = "leaving its job";
    tw_bootstrap_destroy(job);
    doing = "ending";
    return failed != 0 ? failed : note_success(argv[2]);
}
